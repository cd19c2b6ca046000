// Shape inference: the result shape of an instruction from its operands and attributes.
#pragma once

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Returns the result shape that the definition of the opcode implies, without layouts. Example: the result of
// dot(f32[4,8] x, f32[8,2] y) with contracting dimensions {1} and {0} is f32[4,2]. Some opcodes (parameter, constant,
// iota, reshape, custom-call ...) do not determine their result. For these the function returns the instruction's own
// shape, which may have layouts, after checking what the opcode requires of it. Errors are InvalidArgument:
// "found ..., expected ... [label]".
//
// The instruction may be malformed: attributes may have any value, and called computations may lack a root. Pointers to
// operands and called computations must be valid.
absl::StatusOr<Shape> InferShape(const Instruction& instruction);

// The source of an opcode's result shape.
enum class ShapeSource {
  kOperands,  // The operands and attributes determine the result shape.
  kGiven,     // A part (a size, the element type) is taken from the instruction's own shape, which is checked.
};
// Defined for every opcode.
ShapeSource ShapeSourceOf(Opcode opcode);
bool HasInference(Opcode opcode);

// The async-start that begins the chain of `instruction` (an async-start, async-update or async-done), or null if the
// chain begins in another computation.
const Instruction* AsyncStartOf(const Instruction& instruction);

}  // namespace xlad::hlo
