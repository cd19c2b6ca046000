// Vector code of elementwise HLO instructions.
#pragma once

#include <vector>

#include "compiler/analysis/hlo_names.h"
#include "compiler/codegen/tpu/llo_builder.h"

namespace xlad::compiler {

// The type in HBM, or kOther if the core has no code for it.
machine::LloType LloTypeOf(ElementType type);

// Whether EmitElement accepts the instruction: an elementwise instruction for which the chip has code, whose operands
// and result have types other than kOther. Each operand must have the dimensions of the result, or a single element.
bool HasElementCode(const Instruction& instruction);

// Writes the code that computes one tile of the instruction, and returns the number of the vector value that holds it.
// `operands` are the numbers of the vector values that hold the operands, in the builder's current block.
int EmitElement(const Instruction& instruction, const std::vector<int>& operands, LloBuilder* builder);

// Rounds a value of f32 to a narrower float, and wraps an integer to the width of the type. Returns the new value.
int EmitNarrowed(ElementType type, int value, LloBuilder* builder);

// The 32-bit word that represents a scalar constant in a vector register.
uint32_t WordOf(const Instruction& constant);

// The chip's instruction for a reducer that is a single `add`, `multiply`, `maximum`, `minimum`, `and` or `or`.
// `neutral` is the word of its neutral element. FindReducer returns false for reducers of several arrays, for other
// opcodes, and for opcodes that the chip does not have for the type.
struct LloReducer {
  LloOp op = LloOp::kFAdd;
  uint32_t neutral = 0;
};
bool FindReducer(const Computation& reducer, LloReducer* found);

}  // namespace xlad::compiler
