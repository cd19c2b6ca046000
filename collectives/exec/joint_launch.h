// Several collectives that a rank runs as one call, like ncclGroupStart and ncclGroupEnd of NCCL.
//
//   JointLaunch launch;
//   launch.Add(row.get(), *row_sum, gradient, gradient);
//   launch.Add(column.get(), *column_sum, weights, weights);
//   absl::Status status = launch.Run();
//
// Without a joint launch, ranks that take part in several groups must run the operations in one order: if rank 0 runs
// `row_sum` first and rank 1 runs `column_sum` first, they wait for each other forever. In a joint launch, the
// operations of different groups run at the same time, on one thread per group, so no group waits for another. The
// operations of one group run one after the other, in the order in which the group has prepared them, which must be the
// same on all ranks of the group. The order of the calls of Add does not matter, and may differ between the ranks.
#pragma once

#include <functional>
#include <vector>

#include "base/status.h"

namespace xlad::collectives {

// Threads: one thread may use a JointLaunch. Its groups must not be used by other threads while Run is running.
class JointLaunch {
 public:
  // Adds a run of an operation. `group` is a ProcessGroup or a MessageGroup. The group, the operation and the buffers
  // must exist until Run has returned. All ranks of the group must add the same operations of this group, each of them
  // once, and must have prepared them in the same order.
  template <typename Group, typename Operation>
  void Add(Group* group, Operation& operation, const void* input, void* output) {
    entries_.push_back({group, operation.number(), [=, &operation] { return group->Run(operation, input, output); }});
  }

  // Runs all operations that were added, and removes them from the launch. Returns when all have ended. Returns the
  // first error in the order of the calls of Add; each operation's error is that of the group's Run. InvalidArgument,
  // without running any, if an operation was added twice: with other buffers, its two runs would have no order.
  absl::Status Run();

 private:
  struct Entry {
    const void* group = nullptr;
    int64_t number = 0;
    std::function<absl::Status()> run;
  };
  static absl::Status CheckDistinct(const std::vector<Entry>& entries);

  std::vector<Entry> entries_;
};

}  // namespace xlad::collectives
