// Sums over the rows and the columns of a grid of processes that a launcher has started:
//   mpirun -np 5 build/release/bin/example_groups 2        # two columns, messages over the transport auto
//   mpirun -np 5 build/release/bin/example_groups 2 mpi    # messages over MPI
// The ranks that do not fill a row are in no group.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "collectives/exec/joint_launch.h"
#include "collectives/exec/messages/message_group.h"
#include "collectives/exec/transports/registry/registry.h"

namespace {

using namespace xlad::collectives;

absl::StatusOr<std::unique_ptr<MessageGroup>> JoinAllRanks(const std::string& transport) {
  MessageGroup::Options options;
  XLAD_ASSIGN_OR_RETURN(options.transport, ChooseTransport(transport));
  XLAD_ASSIGN_OR_RETURN(const std::optional<Launch> launch, DetectLaunch());
  if (!launch.has_value()) return absl::FailedPreconditionError("found no launcher, expected mpirun or srun");
  options.launch = *launch;
  return MessageGroup::Join(options);
}

absl::StatusOr<std::unique_ptr<MessageGroup::Operation>> SumOf(MessageGroup* group) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllReduce;
  spec.reduction = Reduction::kSum;
  spec.type = xlad::tensor::ElementType::kS64;
  spec.counts = {1};
  spec.ranks = group->ranks();
  return group->Prepare(spec);
}

absl::Status SumRowsAndColumns(int columns, const std::string& transport) {
  XLAD_ASSIGN_OR_RETURN(const auto group, JoinAllRanks(transport));
  const int rank = group->rank();
  const bool takes_part = rank < group->ranks() / columns * columns;
  // All ranks call Split, also those that are in no part (color -1).
  XLAD_ASSIGN_OR_RETURN(const auto row, group->Split({.color = takes_part ? rank / columns : -1}));
  XLAD_ASSIGN_OR_RETURN(const auto column, group->Split({.color = takes_part ? rank % columns : -1}));
  if (!takes_part) {
    std::printf("rank %d is in no group\n", rank);
    return group->Barrier();
  }
  XLAD_ASSIGN_OR_RETURN(const auto row_sum, SumOf(row.get()));
  XLAD_ASSIGN_OR_RETURN(const auto column_sum, SumOf(column.get()));
  const int64_t own = rank;
  int64_t of_row = 0, of_column = 0;
  JointLaunch launch;
  launch.Add(row.get(), *row_sum, &own, &of_row);
  launch.Add(column.get(), *column_sum, &own, &of_column);
  XLAD_RETURN_IF_ERROR(launch.Run());
  std::printf("rank %d: the sum of its row is %lld, of its column %lld\n", rank, static_cast<long long>(of_row),
              static_cast<long long>(of_column));
  return group->Barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const int columns = argc > 1 ? std::atoi(argv[1]) : 0;
  if (columns < 1) {
    std::fprintf(stderr, "groups: found no number of columns, expected COLUMNS [TRANSPORT]\n");
    return 2;
  }
  const absl::Status status = SumRowsAndColumns(columns, argc > 2 ? argv[2] : "auto");
  if (!status.ok()) std::fprintf(stderr, "groups: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
