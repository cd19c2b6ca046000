// One run of a schedule in device memory.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/exec/device/mailbox.h"
#include "collectives/exec/device/shared_blocks.h"
#include "collectives/exec/schedule_program.h"

namespace xlad::collectives {

// The messages to a device that is not in DeviceRunner::peers, on one channel, whose memory that device has read. The
// release of a message by a transport does not say this, because transports copy small messages.
struct ReadMessages {
  ReceiveLink* from_receiver = nullptr;  // An empty message for each message that has been read.
  SendLink* to_sender = nullptr;         // The same for the messages in the other direction.
  int64_t sent = 0, read = 0;            // The number of messages that were sent, and that have been read.
};

// What all runs of a device share.
struct DeviceRunner {
  int device = 0;
  DeviceOps* ops = nullptr;
  std::shared_ptr<DeviceMailbox> mailbox;
  // By device: the peers whose memory this device accesses by their addresses.
  std::map<int, std::shared_ptr<DeviceMailbox>> peers;
  // The memory of the other peers. The links to them have send and receive links, which are null for those in `peers`.
  SharedBlocks* blocks = nullptr;
  std::map<const ScheduleLink*, ReadMessages> read;  // By link to such a peer.
  Recorder* recorder = nullptr;
  // By link: the number of messages whose release the stream waits for, or has waited for.
  std::map<const ScheduleLink*, int64_t> waited;
};

// Enqueues the operations of a schedule on the device's stream: copies, fills and reductions in device memory, and
// waits for events of the peers' streams. Waits for its own stream before it sends a message to a device that is not in
// DeviceRunner::peers, and before it releases one of its messages, because that device's stream cannot wait for an
// event of this one. Otherwise it waits for its own stream only if no event can be recorded.
class DeviceRun {
 public:
  // `memory` is device memory. `reduction` is used if the collective reduces. `runner`, `program` and `launch` must
  // outlive the run.
  DeviceRun(DeviceRunner* runner, const ScheduleProgram& program, const CollectiveLaunch& launch, ScheduleMemory memory,
            const DeviceReduction& reduction)
      : runner_(*runner),
        ops_(*runner->ops),
        program_(program),
        launch_(launch),
        memory_(std::move(memory)),
        reduction_(reduction) {}

  // When this returns without an error, the peers have enqueued all their work that reads this device's memory, and
  // later work of this device's stream runs after it.
  absl::Status Execute();

 private:
  MessageHeader Header(uint32_t message_index) const {
    return HeaderOf(launch_, *program_.collective, program_.sequence, message_index);
  }
  absl::Status Send(const ScheduleInstruction& op);
  absl::Status Write(const ScheduleInstruction& op);
  absl::Status Receive(const ScheduleInstruction& op, std::vector<Pieces>* sources, size_t* held);
  absl::StatusOr<DeviceMessage> Take(const ScheduleOperand& operand, size_t* held);
  absl::Status Release(const ScheduleInstruction& op, size_t held);
  absl::Status CheckMessage(const DeviceMessage& message, const ScheduleOperand& operand, int64_t bytes) const;
  absl::Status Combine(const ScheduleInstruction& op, absl::Span<const Pieces> sources);
  absl::Status WaitReleased(ScheduleLink* link, int64_t messages);
  absl::Status WaitRead(ReadMessages* messages, int64_t count);
  absl::StatusOr<std::shared_ptr<const Event>> Mark();

  DeviceRunner& runner_;
  DeviceOps& ops_;
  const ScheduleProgram& program_;
  const CollectiveLaunch& launch_;
  const ScheduleMemory memory_;
  const DeviceReduction reduction_;
  std::shared_ptr<const Event> mark_;  // The end of the stream's work, or null if more has been enqueued since.
};

}  // namespace xlad::collectives
