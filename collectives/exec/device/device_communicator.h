// Runs the schedules of collectives in the memory of devices. Collectives that cannot run there are staged.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "collectives/exec/communicator.h"
#include "collectives/exec/device/device_run.h"
#include "collectives/exec/staged_communicator.h"

namespace xlad::collectives {

// A collective runs in device memory if all devices of its group are in this process and have one memory
// (DeviceOps::memory_name), or if they can share memory (DeviceOps::shared_memory_name), and the device has a kernel
// for the reduction. The results have the same bits as those of a ScheduledCommunicator with the same plans.
//
// In shared memory, the schedule runs on copies of the inputs and outputs in a block of each device that the others can
// open, because other processes cannot access the program's memory. All programs of a device use one block if it is
// large enough.
//
// Launch and Start enqueue the schedule's operations on the device's stream. The outputs may be used by later work of
// the stream. In the memory of one process, they return before the operations have run; in shared memory, when the
// messages of all operations have been read, so the caller enqueues no other work until then. Errors of the work are
// returned as for all other work of the stream. A started collective does not overlap with later work of the stream.
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
    Transport* transport = nullptr;     // May be null if all devices have one memory.
    SharedBlockPool* blocks = nullptr;  // The same for all programs of the device. May be null without a transport.
    // The names of the shared memory of this device and of all that share a group with it, by device. Devices have the
    // same name only if they also run the same collectives in shared memory, with the same messages.
    std::map<int, std::string> shared_memory;
    std::set<int> by_nccl;  // The indices of the collectives that NCCL runs, for which no memory is needed.
  };

  // Returns `staged` if no collective can run in device memory, and tells it the reasons. If devices can share memory,
  // blocks until their peers call Form too. Everything in `options` must outlive the communicator.
  static absl::StatusOr<std::unique_ptr<Communicator>> Form(const Options& options,
                                                            std::unique_ptr<StagedCommunicator> staged);
  // Waits until no peer reads this device's memory.
  ~DeviceCommunicator() override;

  absl::Status Launch(const CollectiveLaunch& launch) override;
  absl::StatusOr<int64_t> Start(const CollectiveLaunch& launch) override;
  absl::Status Wait(int64_t number) override { return number == 0 ? absl::OkStatus() : staged_->Wait(number); }
  std::string Medium(int spec) const override {
    if (!IsOwn(spec)) return staged_->Medium(spec);
    return shared_.contains(spec) ? "shared device memory" : "device memory";
  }

 private:
  // Memory that grows. The stream may use it at any time.
  struct Memory {
    std::shared_ptr<std::byte> address;
    int64_t bytes = 0;
  };

  // The ranges of the shared block that a collective uses for copies of its inputs and outputs and as scratch memory.
  struct BlockLayout {
    struct Part {
      int64_t offset = 0, bytes = 0;
    };
    explicit BlockLayout(const ScheduleProgram& program);
    std::vector<Part> inputs, outputs;
    int64_t scratch = 0, bytes = 0;
  };

  DeviceCommunicator(const Options& options, std::unique_ptr<StagedCommunicator> staged);
  absl::Status PrepareAll(std::map<std::string, int>* reasons);
  absl::Status Prepare(int spec);
  absl::Status ShareMemory(int64_t bytes);
  absl::Status CannotForm(const absl::Status& status) const;
  bool HasOwnMemory(int device) const;
  bool HaveOwnMemory(const std::vector<int>& devices) const;
  std::string WhyNotIn(const std::vector<int>& devices) const;
  std::string WhyNot(const Collective& collective, const std::vector<int>& devices) const;
  void LogChoice(const std::map<std::string, int>& reasons) const;
  bool IsOwn(int spec) const { return spec >= 0 && spec < std::ssize(programs_) && programs_[spec] != nullptr; }
  absl::Status Enqueue(const ScheduleProgram& program, const CollectiveLaunch& launch);
  absl::Status EnqueueShared(const ScheduleProgram& program, const BlockLayout& layout, const CollectiveLaunch& launch);
  absl::Status Grow(Memory* memory, int64_t bytes);
  absl::Status Fail(const ScheduleProgram& program, const CollectiveLaunch& launch, const absl::Status& status);
  absl::StatusOr<ScheduleLink*> OpenLink(int peer, int channel);

  const Options options_;
  DeviceRunner runner_;
  SharedBlocks blocks_;
  std::map<int, BlockLayout> shared_;  // By spec, for the programs that run in shared memory.
  ScheduleLinks links_;
  std::vector<std::unique_ptr<ScheduleProgram>> programs_;  // By spec; null if the collective is staged.
  Memory scratch_;
  Memory inputs_;  // Copies of inputs that the outputs would overwrite too early.
  std::unique_ptr<StagedCommunicator> staged_;
};

}  // namespace xlad::collectives
