// Executes a step program slowly: every kernel by the evaluator, on the memory that the buffer assignment gave it.
//
// Finds mistakes of everything between HLO and code: passes, order, buffers, steps, collective specs.
#pragma once

#include <vector>

#include "compiler/compile.h"
#include "hlo/literal.h"

namespace xlad::compiler {

// inputs[device][leaf] are the entry's parameter leaves; so are the results. All memory that no value was written to
// holds garbage.
absl::StatusOr<std::vector<std::vector<tensor::Array>>> RunSteps(const Compilation& compilation,
                                                                 const std::vector<std::vector<tensor::Array>>& inputs);

}  // namespace xlad::compiler
