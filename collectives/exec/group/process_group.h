// Collectives among processes of one host through shared memory.
//
//   std::unique_ptr<ProcessGroup> group = *JoinLaunchedGroup({});  // Under mpirun, srun or `xlad bench --ranks`.
//   std::unique_ptr<GroupOperation> sum = *group->Prepare(spec);
//   absl::Status status = group->Run(*sum, input, output);
//
// An operation is prepared once from a spec, which gives the same plan on all ranks, and runs many times on any
// buffers. All ranks run the same operations in the same order; a difference is an error that names both sides. Plain
// buffers are copied through shared scratch that stays in the cache. Buffers of Allocate can be registered: then the
// ranks read and write each other's buffers directly.
//
// Threads: one thread at a time uses a group.
// Errors: InvalidArgument for a spec or plan that cannot run. After an error of Run (a rank died or left, or the ranks
// disagree), all later calls return the same error and outputs are undefined; the other groups of the process continue.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/bootstrap/launcher.h"
#include "collectives/exec/bootstrap/rendezvous.h"
#include "collectives/exec/group/core.h"
#include "collectives/exec/group/memory.h"
#include "collectives/exec/group/plans.h"
#include "collectives/exec/group/wait.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

class ProcessGroup;

struct PrepareOptions {
  bool registered = false;  // All ranks pass only buffers of Allocate to Run, at the same time.
  std::string plan;         // A plan (ParsePlan); empty: the group chooses.
};

// A collective that is ready to run. Belongs to the group that prepared it, which must outlive it.
class GroupOperation {
 public:
  ~GroupOperation();
  const CollectiveSpec& spec() const { return spec_; }
  const CollectivePlan& plan() const { return plan_; }
  const Schedule& schedule() const { return schedule_; }

 private:
  friend class ProcessGroup;
  GroupOperation() = default;

  ProcessGroup* group_ = nullptr;
  CollectiveSpec spec_;
  CollectivePlan plan_;
  Schedule schedule_;
  GroupCommand command_;
  uint64_t word_ = 0;  // EntryLine::operation.
};

// It has more than 25 methods because it has one for each collective.
class ProcessGroup final : private GroupOwner {
 public:
  using Operation = GroupOperation;
  struct Options {
    Launch launch;
    int64_t generation = 0;
    int64_t deadline_ms = 30000;  // How long forming waits for all ranks.
    int64_t scratch_bytes = 0;    // The scratch of each rank; 0: chosen by the number of ranks.
  };

  // Forms a group of all ranks of a launch, which find each other through `bootstrap`. Waits until all have arrived.
  // DeadlineExceeded, naming those that are missing, if they do not arrive in time.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Form(const Options& options, Bootstrap* bootstrap);
  ~ProcessGroup() override;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool exclusive() const { return exclusive_; }  // Every rank has a core of its own.
  // The bytes of shared memory that the group uses on this host, without Allocate.
  int64_t shared_bytes() const { return control_->bytes() + static_cast<int64_t>(scratch_->bytes()); }
  // The process of a rank, for messages: "rank 3 (host node7, pid 4711)".
  std::string Describe(int rank) const { return waiter_->Describe(rank); }
  std::string host(int rank) const { return control_->rank(rank).host; }
  int64_t pid(int rank) const { return control_->rank(rank).pid; }

  // Memory that operations can register; see GroupMemory.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes) { return memory_->Allocate(bytes); }
  absl::Status Free(std::byte* address) { return memory_->Free(address); }

  absl::StatusOr<std::unique_ptr<GroupOperation>> Prepare(const CollectiveSpec& spec,
                                                          const PrepareOptions& options = {});

  // The plans that Prepare accepts for a spec, the one that it would choose first.
  std::vector<CollectivePlan> Plans(const CollectiveSpec& spec, bool registered) const;

  // Runs an operation and returns when it is finished on this rank. `input` and `output` have the spec's sizes, may be
  // equal where the spec allows operations in place, and otherwise must not overlap.
  absl::Status Run(const GroupOperation& operation, const void* input, void* output) {
    if (!error_.ok()) return error_;
    const GroupLaunch launch{&operation.command_, operation.word_, {}, {&input, 1}, {&output, 1}};
    running_ = &operation;
    const absl::Status status = core_->Run(launch);
    return status.ok() ? status : Fail(operation, status);
  }

  // Returns when all ranks have called it.
  absl::Status Barrier();

  // After an error: forms a group of the ranks that are alive, in the same order, with a new generation. All of them
  // must call it; this group then only serves to destroy its operations and memory. DeadlineExceeded, naming the ranks
  // that are alive but have not called it in time.
  absl::StatusOr<std::unique_ptr<ProcessGroup>> Shrink(int64_t deadline_ms = 30000);

 private:
  friend class GroupOperation;
  ProcessGroup() = default;

  absl::Status Join(const Options& options, Bootstrap* bootstrap);
  absl::Status ShareMemory(const Options& options, Rendezvous* rendezvous);
  GroupMachine machine() const;
  uint64_t AliveRanks() const;  // A bit for each rank.
  absl::Status CheckWhileWaiting() override { return absl::OkStatus(); }
  absl::Status Disagreement(int peer) override;
  absl::Status Fail(const GroupOperation& operation, const absl::Status& status);

  int rank_ = 0;
  int ranks_ = 1;
  Launch launch_;
  int64_t generation_ = 0;
  bool exclusive_ = false;
  int64_t cache_bytes_ = 0;
  std::unique_ptr<ControlFile> control_;
  std::unique_ptr<SharedSegment> scratch_;
  std::unique_ptr<GroupWaiter> waiter_;
  std::unique_ptr<GroupMemory> memory_;
  std::unique_ptr<GroupCore> core_;
  std::vector<bool> used_texts_;
  const GroupOperation* running_ = nullptr;  // The last operation that was run.
  std::unique_ptr<GroupOperation> barrier_;
  absl::Status error_;
};

// Joins the group of the launch that started this process (launcher.h), through files of this host. FailedPrecondition
// if no launcher has started it.
absl::StatusOr<std::unique_ptr<ProcessGroup>> JoinLaunchedGroup(int64_t deadline_ms = 30000);

}  // namespace xlad::collectives
