// Tables of element rules by opcode, and helpers that several rules share.
#pragma once

#include <functional>
#include <map>

#include "compiler/analysis/product_form.h"
#include "compiler/codegen/llvm/elements.h"

namespace xlad::compiler {

const std::map<hlo::Opcode, ElementRule>& IndexRules();  // Opcodes that move data.
const std::map<hlo::Opcode, ElementRule>& LoopRules();   // Opcodes with an inner loop over operands, map and gather.

// The start indices of a dynamic-slice or dynamic-update-slice whose index operands begin at operand `first`, clamped
// so that a window of sizes `window` fits into an array of sizes `sizes`.
Values SliceStarts(Elements& elements, const hlo::Instruction& instruction, int64_t first, const tensor::Dims& sizes,
                   const tensor::Dims& window);

// The integer `value` of type `type` as i64, clamped to 0 to `limit`. An unsigned value of 2^63 or more is large.
llvm::Value* ClampedIndex(Ir& ir, ElementType type, llvm::Value* value, int64_t limit);

struct WindowPosition {
  llvm::Value* inside;  // Whether the base has an element at the index, instead of padding or a gap of a dilated base.
  Values index;
};
// Maps window element `inner` of output position `out` to an index of the base. All lists have one entry for each
// window dimension.
WindowPosition PositionInBase(Ir& ir, const hlo::Window& window, const Values& out, const Values& inner,
                              const tensor::Dims& base);

// Component `component` of the index vector of a gather or scatter at batch index `batch`, as i64, not clamped.
llvm::Value* IndexComponent(Elements& elements, const hlo::Instruction* indices, int64_t vector_dim,
                            const Values& batch, int64_t component);

// x * y and x + y as in the sums of dots: small floats are computed as f32, and LLVM may change the order of sums of
// real floats. For pred, they are `and` and `or`.
llvm::Value* EmitProduct(Ir& ir, ElementType type, llvm::Value* x, llvm::Value* y);
llvm::Value* EmitSum(Ir& ir, ElementType type, llvm::Value* x, llvm::Value* y);

// The element of an operand of a dot or convolution, converted to the type of its sums.
llvm::Value* EmitFactor(Elements& elements, const hlo::Instruction& dot, int64_t operand, const Values& at);

// The indices of the operands of a dot or ragged-dot.
struct DotIndices {
  Values lhs, rhs;
};

// The indices for an element of the result. Entries of contracting dimensions are null. `out` does not have a leading
// group index. `group` is the index of rhs's group dimension, if rhs has one.
DotIndices PlaceOfDot(const hlo::Instruction& dot, const Values& out, llvm::Value* group = nullptr);

// The sum of products over the positions of the contracting dimensions for which `counts` returns true. If `counts` is
// null, all positions count. It is called with the indices of lhs.
llvm::Value* EmitContraction(Elements& elements, const hlo::Instruction& dot, const DotIndices& at,
                             const std::function<llvm::Value*(const Values& lhs)>& counts = nullptr);

// The element at `index` of the result of a dot or ragged-dot.
Values EmitDotElement(Elements& elements, const hlo::Instruction& dot, const Index& index);
Values EmitRaggedDot(Elements& elements, const hlo::Instruction& dot, const Index& index);
// The element at `index` of the result of a convolution.
Values EmitConvolutionElement(Elements& elements, const hlo::Instruction& conv, const Index& index);

}  // namespace xlad::compiler
