// Finds the first instruction whose value in a partitioned program differs from that in the source program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hlo/literal.h"
#include "sharding/proof/manual_reference.h"

namespace xlad::sharding {

struct Difference {
  std::string instruction;  // The name and the source line: "dot.3 (dot) at model.py:12".
  std::vector<std::string> inside;  // Loops and branches around it, outermost first: "iteration 2 of while.7".
  int64_t device = 0;
  Dims index;                      // The element's index in the global array.
  std::string whole, partitioned;  // The element's value in the source program and in the partitioned program.
  std::string ToString() const;
};

// Returns by how much the elements of a result may differ from `whole`: `tolerance` times the largest finite value plus
// the rounding error (see Nudged), which is estimated from the elements that are finite in both arrays. An infinity or
// NaN therefore agrees only with itself.
double AllowedDifference(const tensor::Array& whole, const tensor::Array& nudged, double tolerance);

// Evaluates both programs and compares every array of the source program, in program order, with its shards. Compares
// the arrays in a loop for each iteration, and those in a conditional for the branch that is taken. Floats may differ
// by `tolerance` times the largest value of their array plus the rounding error (see Nudged). Zeros may differ in sign.
// All other values must be equal. Returns nullopt if no value differs.
//
// `inputs` are those of the source program. `reference` is null unless the program has manual computations: these have
// no meaning on one device, so the program is compared with the result of PartitionManualOnly, device by device. Values
// that `reference` splits are skipped.
absl::StatusOr<std::optional<Difference>> FirstDifference(const MappedProgram& program, const MappedProgram* reference,
                                                          const std::vector<hlo::Literal>& inputs, double tolerance);

}  // namespace xlad::sharding
