// One run of a schedule over a transport, in host memory.
#pragma once

#include <string>
#include <vector>

#include "collectives/exec/schedule_program.h"

namespace xlad::collectives {

class ScheduleRun {
 public:
  ScheduleRun(const ScheduleProgram& program, const CollectiveLaunch& launch, const Transport& transport,
              Recorder* recorder);

  // Runs all operations and waits until the peers have released all messages. `scratch` has at least the size that the
  // schedule requires; `staging` grows as needed.
  absl::Status Execute(std::vector<std::byte>* scratch, std::vector<std::byte>* staging);

 private:
  absl::Status Send(const ScheduleInstruction& op);
  absl::Status Write(const ScheduleInstruction& op);
  absl::Status Receive(const ScheduleInstruction& op, std::vector<Pieces>* sources, int* held);
  static absl::Status WaitReleased(const ScheduleLink& link, int64_t messages) {
    return link.send->WaitReleased(link.sent + messages);
  }
  absl::Status PostInto(const ScheduleInstruction& op, ReceiveLink* link);
  static absl::Status WaitUntilFree(const ScheduleInstruction& op);
  absl::Status WriteFrom(const ScheduleInstruction& op, absl::Span<const Pieces> sources);
  absl::Status Combine(const ScheduleInstruction& op, absl::Span<const Pieces> sources);
  std::string DescribeOther(const MessageHeader& other) const;
  absl::Status CheckMessage(const Incoming& message, const ScheduleOperand& operand, int64_t bytes) const;
  MessageHeader Header(uint32_t message_index) const {
    return HeaderOf(launch_, *program_.collective, program_.sequence, message_index);
  }
  void ShowWait(const ScheduleInstruction& op, int peer);

  const ScheduleProgram& program_;
  const CollectiveLaunch& launch_;
  const Transport& transport_;
  Recorder* const recorder_;
  ScheduleMemory memory_;
};

}  // namespace xlad::collectives
