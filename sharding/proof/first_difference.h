// Where a partitioned program first computes something else than the whole one: the instruction, not only the result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hlo/literal.h"
#include "sharding/proof/manual_reference.h"

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
// may differ by `tolerance` times the largest value of their array, and by rounding (Nudged); all else by nothing.
// nullopt: no value differs.
// `program` was partitioned from its `whole`; inputs are as the whole program's.
// A program with manual computations has no meaning before it is partitioned: it is compared with `reference`, what
// PartitionManualOnly makes of it, device by device; values that `reference` splits are passed over. Null elsewhere.
absl::StatusOr<std::optional<Difference>> FirstDifference(const MappedProgram& program, const MappedProgram* reference,
                                                          const std::vector<hlo::Literal>& inputs, double tolerance);

}  // namespace xlad::sharding
