// Shape inference: the result shape of an instruction from its operands and attributes.
#pragma once

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// The shape that the opcode's definition gives (layouts left out). For opcodes whose result is not determined by
// operands and attributes (parameter, constant, iota, broadcast's and reshape's sizes, custom-call ...) checks the
// shape it has and returns it. InvalidArgument "found ..., expected ... [label]" where operands do not fit.
absl::StatusOr<Shape> InferShape(const Instruction& instruction);

}  // namespace xlad::hlo
