// One device's membership in a group of devices of one host, which run collectives on mapped memory.
//
// The devices are threads of one or several processes. Small operations are one round over a board; larger ones read
// and write the buffers of all devices directly (collectives/plan/mapped.h). Both reduce in order of the ranks with one
// rounding, so that the bits are those of any plan whose ReductionOrder is ascending.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/abort.h"
#include "collectives/exec/collective_set.h"
#include "collectives/exec/communicator.h"
#include "collectives/exec/group/core.h"
#include "collectives/exec/host/host_memory.h"
#include "collectives/exec/recorder.h"
#include "collectives/exec/transport.h"

namespace xlad::collectives {

// A collective that is ready to run in a group.
struct HostOperation {
  const Collective* collective = nullptr;
  int spec_index = 0;
  Schedule schedule;
  GroupCommand command;
  uint32_t runs = 0;
};

// Used by the thread of the device.
class HostGroup final : private WindowMemory, private GroupOwner {
 public:
  // A member of the group, by rank.
  struct Member {
    int device = 0;
    std::string text;  // "device 3 (worker w2, host node7, pid 4711)"
    HostAddress address;
  };
  struct Options {
    std::vector<Member> members;
    int rank = 0;
    bool exclusive = false;  // Every device of the task has a core.
    std::shared_ptr<HostMemory> memory;
    AbortSignal* abort = nullptr;
    Recorder* recorder = nullptr;
  };

  static constexpr int64_t kMaxOperands = 512;
  // The bytes of an area in which `ranks` devices meet.
  static int64_t AreaBytes(int ranks);
  // Whether a group can run the collective of its plan with the same bits.
  static bool CanRun(const Collective& collective);

  // `area` is the same for all members; `create` for the one member that calls Make before the others. Everything in
  // `options` must outlive the group.
  static absl::StatusOr<std::unique_ptr<HostGroup>> Make(const Options& options, SharedSegment* area, bool create);
  // Call before the first Run, when all members have called Make.
  void Start() { waiter_->Start(); }

  absl::StatusOr<std::unique_ptr<HostOperation>> Prepare(const Collective& collective, int spec_index) const;
  // Waits for all members as far as the collective needs them. An error ends the group; the message names the operation
  // of the schedule.
  absl::Status Run(HostOperation* operation, const CollectiveLaunch& launch);
  // Returns when no member in this process reads or writes the buffers of this device any longer. The abort signal must
  // have been raised.
  void WaitUntilUnused() const;
  ~HostGroup() override;

 private:
  struct Staged {
    std::byte* address = nullptr;  // In the arena, or in `heap` if all members are in this process.
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
  bool all_local_ = false;                 // All members are in this process: positions are addresses.
  std::vector<HostMemory::Arena> arenas_;  // By rank; empty if all are local.
  std::unique_ptr<ControlFile> control_;
  std::unique_ptr<GroupWaiter> waiter_;
  std::unique_ptr<GroupCore> core_;
  MessageHeader header_;  // Identifies the operation that runs.
  int64_t bytes_ = 0;
  std::vector<Staged> staged_;  // Copies of buffers that the peers cannot access where they are.
};

}  // namespace xlad::collectives
