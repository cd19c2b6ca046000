// Vector code of elementwise HLO instructions.
#pragma once

#include <vector>

#include "compiler/analysis/hlo_names.h"
#include "compiler/codegen/tpu/llo_builder.h"

namespace xlad::compiler {

// The type in HBM, or kOther if DMA cannot convert it.
machine::LloType LloTypeOf(ElementType type);

// Whether EmitElement accepts the instruction: an elementwise instruction whose operands and result have types that DMA
// converts. All others are computed by macro-operations.
bool HasElementCode(const Instruction& instruction);

// Writes the code for one tile and returns its value. `operands` are values of the block.
int EmitElement(const Instruction& instruction, const std::vector<int>& operands, LloBuilder* builder);

// The word of a scalar constant in a vector register.
uint32_t WordOf(const Instruction& constant);

// The code of a reducer that combines two values of one array by add, multiply, maximum, minimum, and, or; and the word
// that is neutral for it. False for others.
struct LloReducer {
  LloOp op = LloOp::kFAdd;
  uint32_t neutral = 0;
};
bool FindReducer(const Computation& reducer, LloReducer* found);

}  // namespace xlad::compiler
