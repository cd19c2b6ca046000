// send and recv between the devices of one evaluation.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "hlo/eval/groups.h"
#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {

// What has been sent and not yet received, in order, channel by channel. A send never waits.
//
// Where the pair's frontend attribute _xla_send_recv_source_target_pairs says "{{0,1},{1,2}}", device 0 sends to 1 and
// 1 to 2, the others' sends do nothing and their recvs give zeros; ids are partitions of one replica, or replicas
// where there is one partition. Without it, a channel has one sender and one receiver.
class Mailbox {
 public:
  absl::Status Send(const Instruction& send, const DeviceGrid& grid, int64_t device, const Value& data);
  // What `device` receives at `done`, a recv-done; nothing yet where it has to wait.
  absl::StatusOr<std::optional<Value>> Receive(const Instruction& done, const DeviceGrid& grid, int64_t device);

 private:
  struct Message {
    int64_t target;  // A device, or -1 for whoever receives on the channel.
    Value data;
  };
  std::map<int64_t, std::deque<Message>> channels_;
};

}  // namespace xlad::hlo::eval
