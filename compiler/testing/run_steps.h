// Interprets a step program: the evaluator runs each kernel, on the memory that the buffer assignment has chosen.
//
// Tests use it to find errors in everything between HLO and code generation: passes, instruction order, buffers, steps
// and collective specs.
#pragma once

#include <vector>

#include "compiler/compile.h"
#include "hlo/literal.h"

namespace xlad::compiler {

// inputs[device] are the leaves of the entry's parameters. The results are the leaves of its root, for each device.
// Initially, all memory except for constants and parameters is filled with garbage. Internal if the steps are wrong,
// for example if a loop does not have the trip count of its step, if only some of the devices reach a collective, or if
// a step changes a buffer of a running collective. Also returns the errors of the evaluator.
absl::StatusOr<std::vector<std::vector<tensor::Array>>> RunSteps(const Compilation& compilation,
                                                                 const std::vector<std::vector<tensor::Array>>& inputs);

}  // namespace xlad::compiler
