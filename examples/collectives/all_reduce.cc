// Sums a vector over all processes that a launcher has started:
//   mpirun -np 4 build/release/bin/example_all_reduce
// The program needs only the library of collectives, and no MPI.
#include <cstdio>
#include <memory>
#include <vector>

#include "collectives/exec/group/process_group.h"

namespace {

absl::Status SumOverRanks() {
  using namespace xlad::collectives;
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessGroup> group, JoinLaunchedGroup());

  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllReduce;
  spec.reduction = Reduction::kSum;
  spec.type = xlad::tensor::ElementType::kF32;
  spec.counts = {1000};
  spec.ranks = group->ranks();
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<GroupOperation> sum, group->Prepare(spec));

  std::vector<float> values(1000, static_cast<float>(group->rank() + 1));
  for (int step = 0; step < 3; ++step) {
    // The reduction is in place: input and output are the same buffer.
    XLAD_RETURN_IF_ERROR(group->Run(*sum, values.data(), values.data()));
    std::printf("step %d, rank %d of %d: the sum is %g\n", step, group->rank(), group->ranks(), values[0]);
  }
  return group->Barrier();
}

}  // namespace

int main() {
  const absl::Status status = SumOverRanks();
  if (!status.ok()) std::fprintf(stderr, "all_reduce: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
