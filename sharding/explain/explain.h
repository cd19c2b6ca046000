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
  int64_t group_size = 1;
  int64_t bytes = 0;       // The least a device must send, once.
  // What a ring sends for it alone, in whole elements, once. When compiled, small all-reduces run as one, which sends
  // no more than theirs together.
  int64_t wire_bytes = 0;
  // How often a step executes it, or nothing if the trip count of a loop around it is unknown.
  std::optional<int64_t> trip_count;
  std::string op;                     // The instruction of the user's program that needs it.
  std::vector<std::string> because;   // The chain of causes, nearest first.
};

struct Explanation {
  std::vector<ExplainedCollective> collectives;
  // The sum of bytes x trip count. An unknown trip count counts as 1, as in the XLA figures that it is compared with.
  int64_t bytes_per_device = 0;
  // The same sum for cost models, in which a loop with an unknown trip count runs hlo::kAssumedTripCount times.
  double assumed_bytes_per_device = 0;
};

// Explains the collectives in program order. InvalidArgument if the program has no module.
absl::StatusOr<Explanation> Explain(const PartitionedProgram& program);

}  // namespace xlad::sharding
