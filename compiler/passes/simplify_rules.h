// The rules of Simplify. Each takes an instruction and returns its replacement, made with `builder` in the same
// computation, or null if no rule applies. The replacement has the instruction's type and dimensions.
//
// Every rule is exact: the results have the same bits for all inputs, signs of zeros included. NaN payloads may differ
// after arithmetic. The only exception is power(x, 2): x * x is rounded correctly, whereas the power function may be
// off by one unit in the last place.
#pragma once

#include "compiler/analysis/hlo_names.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {

// Elementwise opcodes. Also moves an operation on broadcast scalars before the broadcast.
Instruction* SimplifyElementwise(Instruction* instruction, hlo::Builder& builder);
// Opcodes that move elements: reshape, broadcast, transpose, slice, pad, concatenate, reverse, dynamic-slice and
// dynamic-update-slice.
Instruction* SimplifyShape(Instruction* instruction, hlo::Builder& builder);
// reduce and sort.
Instruction* SimplifyReductions(Instruction* instruction, hlo::Builder& builder);
// Tuples and conditionals.
Instruction* SimplifyControlFlow(Instruction* instruction, hlo::Builder& builder);

}  // namespace xlad::compiler
