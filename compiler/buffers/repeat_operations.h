// Repeats operations in a list of a LinearProgram, so that dropped values are computed again.
#pragma once

#include <optional>

#include "compiler/buffers/saved_values.h"

namespace xlad::compiler {

// The result of one round of rematerialization.
struct Repeated {
  LinearProgram program;
  double ns = 0;  // The estimated time of the operations that were added, in one execution of the list.
};

// Copies the program and repeats operations, so that only saved values are kept in memory across a cut. Other values
// are computed again immediately before the next operation that reads them, after the values that they need. The
// repeated operations have results of their own, which later operations read instead of the original ones. The other
// operations and their order do not change. `saved` is a plan of SavePlanner for the same facts and cuts.
// Returns nullopt if this would add more than `max_added` operations to the list.
std::optional<Repeated> RepeatOperations(const LinearProgram& program, const RecomputeFacts& facts, const Cuts& cuts,
                                         const std::vector<bool>& saved, int64_t max_added);

}  // namespace xlad::compiler
