// The tables of element rules and what they share.
#pragma once

#include <map>

#include "compiler/codegen/llvm/elements.h"

namespace xlad::compiler {

const std::map<hlo::Opcode, ElementRule>& IndexRules();  // Opcodes that move data.
const std::map<hlo::Opcode, ElementRule>& LoopRules();   // Opcodes with an inner loop over operands.

// The clamped start indices of a dynamic-slice or dynamic-update-slice, whose index operands begin at `first`:
// `window` taken from `sizes`.
Values SliceStarts(Elements& elements, const hlo::Instruction& instruction, int64_t first, const tensor::Dims& sizes,
                   const tensor::Dims& window);

// Where window element `inner` of output position `out` lies in the base, and whether it lies on an element of it
// (not in padding or in a hole of a dilated base). One entry a window dimension.
struct WindowPosition {
  llvm::Value* inside;
  Values index;
};
WindowPosition PositionInBase(Ir& ir, const hlo::Window& window, const Values& out, const Values& inner,
                              const tensor::Dims& base);

// Component `component` of the index vector of a gather or scatter at `batch`, as i64, as it stands.
llvm::Value* IndexComponent(Elements& elements, const hlo::Instruction* indices, int64_t vector_dim,
                            const Values& batch, int64_t component);

// x * y and x + y where a dot accumulates: small floats are f32 values there, sums may be reassociated.
llvm::Value* EmitProduct(Ir& ir, ElementType type, llvm::Value* x, llvm::Value* y);
llvm::Value* EmitSum(Ir& ir, ElementType type, llvm::Value* x, llvm::Value* y);

Values EmitRaggedDot(Elements& elements, const hlo::Instruction& dot, const Index& index);

// What sums of a type are kept in: f32 for small floats.
ElementType Accumulating(ElementType type);

}  // namespace xlad::compiler
