// Explains a partitioned program: the bytes that its collectives send, how often they run, and why they are there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sharding/partition/partition.h"

namespace xlad::sharding {

struct ExplainedCollective {
  std::string kind;
  std::vector<std::string> axes;
  int64_t group_size = 1;  // The size of the largest group; for a collective-permute, the number of devices.
  int64_t bytes = 0;  // The minimum number of bytes that a device sends in one execution.
  // The bytes that a device sends in one execution by a ring algorithm, which cuts operands into chunks of whole
  // elements. A compiled program combines small all-reduces; the combined all-reduce sends at most the sum of their
  // bytes.
  int64_t wire_bytes = 0;
  // How often one step executes the collective, assuming that every branch of a conditional runs. Nullopt if the
  // collective is in a loop whose trip count is unknown.
  std::optional<int64_t> trip_count;
  std::string op;                    // The instruction of the user's program that needs the collective.
  std::vector<std::string> because;  // The chain of causes, from `op` to the user's annotation.
};

struct Explanation {
  std::vector<ExplainedCollective> collectives;
  // The sum of bytes x trip count. An unknown trip count counts as 1, as in XLA's figures, with which the sum is
  // compared.
  int64_t bytes_per_device = 0;
  // The sum that cost models use: a loop with an unknown trip count runs hlo::kAssumedTripCount times.
  double assumed_bytes_per_device = 0;
};

// Explains the collectives in program order. InvalidArgument if the program has no module.
absl::StatusOr<Explanation> Explain(const PartitionedProgram& program);

}  // namespace xlad::sharding
