// Collectives among the processes of one host through shared memory.
//
//   std::unique_ptr<ProcessGroup> group = *JoinLaunchedGroup({});  // Under mpirun, srun or `xlad bench --ranks`.
//   std::unique_ptr<GroupOperation> sum = *group->Prepare(spec);
//   absl::Status status = group->Run(*sum, input, output);
//
//   std::unique_ptr<ProcessGroup> row = *group->Split({.color = group->rank() / 4});
//   std::unique_ptr<GroupOperation> row_sum = *row->Prepare(row_spec);
//   JointLaunch both;  // Runs operations of several groups as one call (joint_launch.h).
//   both.Add(group.get(), *sum, input, output);
//   both.Add(row.get(), *row_sum, row_input, row_output);
//   status = both.Run();
//
// An operation is prepared once from a spec and runs many times on any buffers. All ranks get the same plan for a spec.
// All ranks must run the same operations in the same order; if they do not, the error names both operations. Plain
// buffers are copied through shared scratch that stays in the cache. Buffers of Allocate can be registered: the ranks
// then read and write each other's buffers directly.
//
// Threads: one thread at a time may use a group. Errors: Prepare returns InvalidArgument or Unimplemented for a spec or
// plan that cannot run. Run returns InvalidArgument if buffers that must be registered are not memory of Allocate; the
// group can still be used. Run returns another error if a rank died or left, or if the ranks disagree. All later runs
// then return the same error, and outputs are undefined. The other groups of the process are not affected.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/bootstrap/launcher.h"
#include "collectives/exec/bootstrap/rendezvous.h"
#include "collectives/exec/group/core.h"
#include "collectives/exec/group/memory.h"
#include "collectives/exec/group/plans.h"
#include "collectives/exec/group/split.h"
#include "collectives/exec/group/wait.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

class ProcessGroup;

struct PrepareOptions {
  bool registered = false;  // All buffers that the ranks pass to Run are memory of Allocate.
  std::string plan;         // A plan as text (ParsePlan). If it is empty, the group chooses one.
};

// A collective that is ready to run. Belongs to the group that prepared it, which must outlive it.
class GroupOperation {
 public:
  ~GroupOperation();
  const CollectiveSpec& spec() const { return spec_; }
  const CollectivePlan& plan() const { return plan_; }
  int64_t number() const { return number_; }  // The number of operations that the group has prepared before.
  const Schedule& schedule() const { return schedule_; }

 private:
  friend class ProcessGroup;
  GroupOperation() = default;

  ProcessGroup* group_ = nullptr;
  CollectiveSpec spec_;
  CollectivePlan plan_;
  Schedule schedule_;
  GroupCommand command_;
  uint64_t word_ = 0;  // The value of EntryLine::operation.
  int64_t number_ = 0;
};

// The processes of one host that run collectives together. The class has more than 25 methods because it also describes
// its ranks, allocates their memory, and lends its control file to a MessageGroup of the same ranks.
class ProcessGroup final : private GroupOwner {
 public:
  using Operation = GroupOperation;
  struct Options {
    Launch launch;
    int64_t generation = 0;       // How often the group has shrunk before.
    int64_t deadline_ms = 30000;  // How long forming waits for all ranks.
    // The scratch of each rank in bytes, or 0 to choose it from the number of ranks. Only the value of rank 0 is used.
    int64_t scratch_bytes = 0;
    // The size of the last-level cache in bytes, or 0 to look it up. Must be equal on all ranks.
    int64_t cache_bytes = 0;
    // If set, called repeatedly while the group forms and this rank waits for `rank`. An error ends the wait.
    std::function<absl::Status(int rank)> check_peer = nullptr;
  };

  // Forms a group of all ranks of a launch, which find each other through `bootstrap`. Waits until all have arrived.
  // DeadlineExceeded, naming the missing ranks, if they do not arrive in time.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Form(const Options& options, Bootstrap* bootstrap);
  ~ProcessGroup() override;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool exclusive() const { return exclusive_; }  // Every rank has a core of its own.
  // The shared memory that the group uses on this host, in bytes, without that of Allocate.
  int64_t shared_bytes() const { return control_->bytes() + static_cast<int64_t>(scratch_->bytes()); }
  // The process of a rank, for messages: "rank 3 (host node7, pid 4711)".
  std::string Describe(int rank) const { return waiter_->Describe(rank); }
  std::string host(int rank) const { return control_->rank(rank).host; }
  int64_t pid(int rank) const { return control_->rank(rank).pid; }

  // The control file of the group and the texts of this rank in it, for records of what the ranks do outside the group.
  const std::shared_ptr<ControlFile>& control() const { return control_; }
  const std::shared_ptr<OperationTexts>& texts() const { return texts_; }
  // Called repeatedly while a MessageGroup of the same ranks forms and this rank waits in it for `peer`. Returns the
  // error of the ProcessGroup, or of GroupWaiter::CheckPeer for `peer` or any rank without an error of messages.
  absl::Status CheckWhileForming(int peer);

  // Returns memory that can be registered; see GroupMemory.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes) { return memory_->Allocate(bytes); }
  absl::Status Free(std::byte* address) { return memory_->Free(address); }

  absl::StatusOr<std::unique_ptr<GroupOperation>> Prepare(const CollectiveSpec& spec,
                                                          const PrepareOptions& options = {});

  // Returns plans that Prepare accepts for a spec (GroupPlans). The first is the one that Prepare would choose.
  std::vector<CollectivePlan> Plans(const CollectiveSpec& spec, bool registered) const;
  // Returns why Prepare would choose that plan, as GroupChoice::why.
  std::string WhyChosen(const CollectiveSpec& spec, bool registered) const;

  // Runs an operation and returns when it is finished on this rank. `input` and `output` have the spec's sizes. They
  // may be equal if the spec allows operations in place, and must not overlap otherwise.
  absl::Status Run(const GroupOperation& operation, const void* input, void* output) {
    if (!error_.ok()) return error_;
    const GroupLaunch launch{&operation.command_, operation.word_, {}, {&input, 1}, {&output, 1}};
    running_ = &operation;
    const absl::Status status = core_->Run(launch);
    return status.ok() ? status : Fail(operation, status);
  }

  // Returns when all ranks have called Barrier.
  absl::Status Barrier();

  // Ends the group on this rank with an error that came from elsewhere, unless it has had an error. The ranks that wait
  // for this rank, now or later, get an error too.
  void Stop(const absl::Status& error);

  // Forms a smaller group of the ranks with this rank's color, or returns null if the color is negative. All ranks must
  // call Split together, like a collective. Both groups can be used afterwards, each by one thread at a time; two
  // threads may use the two groups at once. An error of one does not end the other. Errors are those of Run and Form.
  absl::StatusOr<std::unique_ptr<ProcessGroup>> Split(const PartOfSplit& part, int64_t deadline_ms = 30000);

  // After an error: forms a group of the ranks that are alive, in the same order, with a new generation. All ranks that
  // are alive must call it. Afterwards the old group may only be used to destroy its operations and memory.
  // DeadlineExceeded, naming the ranks that are alive but have not called Shrink in time. FailedPrecondition if this
  // rank has had no error.
  absl::StatusOr<std::unique_ptr<ProcessGroup>> Shrink(int64_t deadline_ms = 30000);

 private:
  friend class GroupOperation;
  ProcessGroup() = default;

  absl::Status Join(const Options& options, Bootstrap* bootstrap);
  absl::Status ShareMemory(const Options& options, Rendezvous* rendezvous);
  GroupMachine machine() const;
  uint64_t AliveRanks() const;  // A mask with one bit per rank.
  absl::Status CheckWhileWaiting() override { return absl::OkStatus(); }
  absl::Status Disagreement(int peer) override;
  absl::Status Fail(const GroupOperation& operation, const absl::Status& status);

  int rank_ = 0;
  int ranks_ = 1;
  Launch launch_;
  int64_t generation_ = 0;
  int64_t splits_ = 0;  // The number of calls of Split.
  bool exclusive_ = false;
  int64_t cache_bytes_ = 0;
  std::shared_ptr<ControlFile> control_;
  std::unique_ptr<SharedSegment> scratch_;
  std::unique_ptr<GroupWaiter> waiter_;
  std::unique_ptr<GroupMemory> memory_;
  std::unique_ptr<GroupCore> core_;
  std::shared_ptr<OperationTexts> texts_;
  int64_t prepared_ = 0;                     // The number of operations that were prepared.
  const GroupOperation* running_ = nullptr;  // The last operation that was run.
  std::unique_ptr<GroupOperation> barrier_;
  absl::Status error_;
};

// Joins the group of the launch that started this process (launcher.h), through files of this host. FailedPrecondition
// if no launcher has started this process. Other errors are those of DetectLaunch, CheckOneHost, ControlFolder,
// MeetingFolder::Open and Form.
absl::StatusOr<std::unique_ptr<ProcessGroup>> JoinLaunchedGroup(int64_t deadline_ms = 30000);

}  // namespace xlad::collectives
