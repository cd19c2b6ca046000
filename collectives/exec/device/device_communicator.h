// Runs the schedules of collectives in the memory of devices. Collectives that cannot run there are staged.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/communicator.h"
#include "collectives/exec/device/device_run.h"
#include "collectives/exec/staged_communicator.h"

namespace xlad::collectives {

// A collective runs in device memory if all devices of its group are in this process and have one memory
// (DeviceOps::memory_name), and the device has a kernel for the reduction. The results have the same bits as those of a
// ScheduledCommunicator with the same plans.
//
// Launch and Start enqueue the schedule's operations on the device's stream, and return before they have run. The
// outputs may be used by later work of the stream. Errors of the work are returned as for all other work of the stream.
// A started collective does not overlap with later work of the stream.
class DeviceCommunicator final : public Communicator {
 public:
  struct Options {
    int device = 0;
    int first_channel = 0;
    const CollectiveSet* collectives = nullptr;
    DeviceOps* ops = nullptr;
    // The mailboxes of this process. All devices of this process that share a group with this one have made theirs.
    DeviceMailboxes* mailboxes = nullptr;
    AbortSignal* abort = nullptr;
    Recorder* recorder = nullptr;
  };

  // Returns `staged` if no collective can run in device memory, and tells it the reasons. Everything in `options` must
  // outlive the communicator.
  static absl::StatusOr<std::unique_ptr<Communicator>> Form(const Options& options,
                                                            std::unique_ptr<StagedCommunicator> staged);
  // Waits until no peer reads this device's memory.
  ~DeviceCommunicator() override;

  absl::Status Launch(const CollectiveLaunch& launch) override;
  absl::StatusOr<int64_t> Start(const CollectiveLaunch& launch) override;
  absl::Status Wait(int64_t number) override { return number == 0 ? absl::OkStatus() : staged_->Wait(number); }
  std::string Medium(int spec) const override { return IsOwn(spec) ? "device memory" : staged_->Medium(spec); }

 private:
  // Memory that grows. The stream may use it at any time.
  struct Memory {
    std::shared_ptr<std::byte> address;
    int64_t bytes = 0;
  };

  DeviceCommunicator(const Options& options, std::unique_ptr<StagedCommunicator> staged);
  absl::Status Prepare(int spec);
  std::string WhyNot(const Collective& collective, const std::vector<int>& devices) const;
  void LogChoice(const std::map<std::string, int>& reasons) const;
  bool IsOwn(int spec) const { return spec >= 0 && spec < std::ssize(programs_) && programs_[spec] != nullptr; }
  absl::Status Enqueue(const ScheduleProgram& program, const CollectiveLaunch& launch);
  absl::Status Grow(Memory* memory, int64_t bytes);
  absl::Status Fail(const ScheduleProgram& program, const CollectiveLaunch& launch, const absl::Status& status);
  ScheduleLink* OpenLink(int peer, int channel);

  const Options options_;
  DeviceRunner runner_;
  ScheduleLinks links_;                                     // Their send and receive links are null.
  std::vector<std::unique_ptr<ScheduleProgram>> programs_;  // By spec; null if the collective is staged.
  Memory scratch_;
  Memory inputs_;  // Copies of inputs that the outputs would overwrite too early.
  std::unique_ptr<StagedCommunicator> staged_;
};

}  // namespace xlad::collectives
