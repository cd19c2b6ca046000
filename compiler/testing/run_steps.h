// Interprets a step program: runs each kernel by the evaluator, in the memory that the buffer assignment chose for it.
//
// Tests use it to find errors in everything between HLO and code generation: passes, instruction order, buffers, steps
// and collective specs.
#pragma once

#include <vector>

#include "compiler/compile.h"
#include "hlo/literal.h"

namespace xlad::compiler {

// inputs[device] are the leaves of the entry's parameters; the results are the leaves of its root, for each device.
// Memory is filled with garbage first.
absl::StatusOr<std::vector<std::vector<tensor::Array>>> RunSteps(const Compilation& compilation,
                                                                 const std::vector<std::vector<tensor::Array>>& inputs);

}  // namespace xlad::compiler
