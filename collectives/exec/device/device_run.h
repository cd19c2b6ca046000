// One run of a schedule in device memory.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/exec/device/mailbox.h"
#include "collectives/exec/schedule_program.h"

namespace xlad::collectives {

// What all runs of a device share.
struct DeviceRunner {
  int device = 0;
  DeviceOps* ops = nullptr;
  std::shared_ptr<DeviceMailbox> mailbox;
  std::map<int, std::shared_ptr<DeviceMailbox>> peers;  // By device.
  Recorder* recorder = nullptr;
  // By link: the number of messages whose release the stream waits for, or has waited for.
  std::map<const ScheduleLink*, int64_t> waited;
};

// Enqueues the operations of a schedule on the device's stream: copies, fills and reductions in device memory, and
// waits for events of the peers' streams. Waits for its own stream only if no event can be recorded.
class DeviceRun {
 public:
  // `memory` is device memory. `reduction` is used if the collective reduces. The other arguments must outlive the run.
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
  absl::Status CheckMessage(const DeviceMessage& message, const ScheduleOperand& operand, int64_t bytes) const;
  absl::Status Combine(const ScheduleInstruction& op, absl::Span<const Pieces> sources);
  absl::Status WaitReleased(ScheduleLink* link, int64_t messages);
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
