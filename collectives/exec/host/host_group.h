// One device's membership in a group of devices of one host. The group runs collectives on mapped memory.
//
// The devices are threads of one or several processes. In small operations, all devices publish their inputs and then
// read those of the others (GroupProgram::board). Larger operations read and write the buffers of all devices directly
// (collectives/plan/mapped.h). Both reduce in the order of the ranks, or as a tree in canonical mode, and round each
// result once. In the order of the ranks, the results have the same bits as those of any plan whose ReductionOrder is
// ascending.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/abort.h"
#include "collectives/exec/group/core.h"
#include "collectives/exec/group/cores.h"
#include "collectives/exec/host/host_memory.h"
#include "collectives/exec/schedule_program.h"

namespace xlad::collectives {

// A collective that is ready to run in a group.
struct HostOperation {
  const Collective* collective = nullptr;
  Schedule schedule;
  GroupCommand command;
  uint32_t runs = 0;  // The number of runs that have begun.
};

// Only the thread of the device may use a group.
class HostGroup final : private WindowMemory, private GroupOwner {
 public:
  struct Member {
    int device = 0;
    std::string text;  // "device 3 (worker w2, host node7, pid 4711)"
    HostAddress address;
  };
  struct Options {
    std::vector<Member> members;  // By rank.
    int rank = 0;
    bool exclusive = false;  // Every device of the task has a core of its own.
    std::shared_ptr<HostMemory> memory;
    AbortSignal* abort = nullptr;
    Recorder* recorder = nullptr;
    int64_t cache_bytes = LastLevelCacheBytes();  // Results of collectives that are too large for it bypass the cache.
  };

  static constexpr int64_t kMaxOperands = 512;
  // Returns the size in bytes of an area for `ranks` devices.
  static int64_t AreaBytes(int ranks);
  // Whether a group can run the collective. Unless its mode is kFast, the results have the same bits as those of its
  // plan.
  static bool CanRun(const Collective& collective);

  // `area` is the same memory for all members. `create` is true for the first member that calls Make. Everything in
  // `options` must outlive the group.
  static absl::StatusOr<std::unique_ptr<HostGroup>> Make(const Options& options, SharedSegment* area, bool create);
  // Must be called before the first Run, when all members have called Make.
  void Start() { waiter_->Start(); }

  // Makes a collective ready to run. `collective` must outlive the result. Errors are those of MakeGroupCommand.
  absl::StatusOr<std::unique_ptr<HostOperation>> Prepare(const Collective& collective) const;
  // Waits for other members only as far as the collective needs their data. An error ends the group. Unless the error
  // precedes the first operation, or GroupProgram::board is true, the message names the operation of the schedule.
  absl::Status Run(HostOperation* operation, const CollectiveLaunch& launch);
  // Waits until no other member in this process reads or writes the buffers of this device. The abort signal must have
  // been raised.
  void WaitUntilUnused() const;
  ~HostGroup() override;

 private:
  struct Staged {
    std::byte* address = nullptr;  // Memory of the arena, or of `heap` if all members are in this process.
    int64_t bytes = 0;
    std::unique_ptr<std::byte[]> heap;
  };

  explicit HostGroup(const Options& options) : options_(options) {}

  std::optional<WindowPosition> Find(const void* address, int64_t bytes) const override;
  absl::StatusOr<std::byte*> Address(int peer, const WindowPosition& position, int64_t bytes) override;
  absl::Status CheckWhileWaiting() override;
  absl::Status Disagreement(int peer) override;
  void AtStep(int op) override { options_.recorder->AtOp(op); }
  absl::Status RunOn(HostOperation* operation, const CollectiveLaunch& launch, absl::Span<const void* const> inputs,
                     absl::Span<void* const> outputs);
  absl::StatusOr<std::byte*> Stage(size_t index, int64_t bytes);
  bool IsLocal(int rank) const;

  const Options options_;
  bool all_local_ = false;                 // All members are in this process, so a position is an address.
  std::vector<HostMemory::Arena> arenas_;  // By rank; empty if `all_local_` is true.
  std::unique_ptr<ControlFile> control_;
  std::unique_ptr<GroupWaiter> waiter_;
  std::unique_ptr<GroupCore> core_;
  MessageHeader header_;  // Identifies the running operation.
  int64_t bytes_ = 0;
  std::vector<Staged> staged_;  // Copies of buffers that the peers cannot access in place.
};

}  // namespace xlad::collectives
