// Where a partitioned program first computes something else than the whole one: the instruction, not only the result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hlo/literal.h"
#include "sharding/partition/partition.h"

namespace xlad::sharding {

struct Difference {
  std::string instruction;  // Its name in the whole program, and where it stands: "dot.3 (dot) at model.py:12".
  std::vector<std::string> inside;  // Outermost first: "iteration 2 of while.7".
  int64_t device = 0;
  Dims index;               // Of the whole array.
  std::string whole, partitioned;  // The element's values.
  std::string ToString() const;
};

// Runs both on the evaluator and compares every array value of the whole program, in program order, with what the
// devices hold of it; where a loop or branch is the first to differ, its iterations and instructions in turn. Floats
// may differ by `tolerance` times the largest value of their array, all else by nothing. nullopt: no value differs.
// `whole` is what `program` was made from, by Partition with this trace; inputs as the whole program's.
// Unimplemented where the program has manual computations, which have no meaning before they are partitioned.
absl::StatusOr<std::optional<Difference>> FirstDifference(const ShardedModule& whole, const PartitionedProgram& program,
                                                          const Trace& trace, const std::vector<hlo::Literal>& inputs,
                                                          double tolerance);

}  // namespace xlad::sharding
