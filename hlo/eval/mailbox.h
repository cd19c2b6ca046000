// send and recv between the devices of one evaluation.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "hlo/eval/groups.h"
#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {

// The messages that have been sent and not yet received, per channel, in order. A send never blocks.
//
// The frontend attribute _xla_send_recv_source_target_pairs="{{0,1},{1,2}}" of a send and its recv says that id 0 sends
// to id 1, and id 1 to id 2. Sends of devices that are not a source have no effect, and recvs of devices that are not a
// target return zeros. The ids are partitions of the same replica, or replicas if there is only one partition. Without
// the attribute, a channel has one sender and one receiver.
class Mailbox {
 public:
  // Runs a send of `data` by `device`.
  absl::Status Send(const Instruction& send, const DeviceGrid& grid, int64_t device, const Value& data);
  // The result of the recv-done `done` on `device`, or nullopt if the message has not been sent yet. InvalidArgument if
  // the message has another shape. Both functions return InvalidArgument if the attribute cannot be parsed or
  // contains a device that does not exist, and Unimplemented if the peer is the host.
  absl::StatusOr<std::optional<Value>> Receive(const Instruction& done, const DeviceGrid& grid, int64_t device);

 private:
  struct Message {
    int64_t target;  // A device, or -1 for the only receiver of the channel.
    Value data;
  };
  std::map<int64_t, std::deque<Message>> channels_;
};

}  // namespace xlad::hlo::eval
