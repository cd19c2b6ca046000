// Shape inference: the result shape of an instruction from its operands and attributes.
#pragma once

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// The shape that the opcode's definition gives (layouts left out). For opcodes whose result is not determined by
// operands and attributes (parameter, constant, iota, broadcast's and reshape's sizes, custom-call ...) checks the
// shape it has and returns it. InvalidArgument "found ..., expected ... [label]" where operands do not fit.
//
// Trusts only what C++ types promise: attributes may hold anything and called computations may lack a root, but
// pointers to operands and called computations are valid.
absl::StatusOr<Shape> InferShape(const Instruction& instruction);

// Where an opcode's result shape comes from.
enum class ShapeSource {
  kOperands,  // Operands and attributes say all.
  kGiven,     // The instruction's own shape says at least a part (a size, the element type); it is checked.
};
// Every opcode has a row.
ShapeSource ShapeSourceOf(Opcode opcode);
bool HasInference(Opcode opcode);

// The async-start of an async-start, -update or -done of its computation; nullptr where the chain comes from elsewhere.
const Instruction* AsyncStartOf(const Instruction& instruction);

}  // namespace xlad::hlo
