// Dots as products of matrices in blocks.
#pragma once

#include "compiler/codegen/llvm/blocked_product.h"

namespace xlad::compiler {

// An operand of a dot or ragged-dot as a matrix of lines and depth. The other dimensions have fixed indices.
class DotOperand {
 public:
  // `lines` are dimensions of the operand. The contracting dimensions are the depth. `stride` is the distance of
  // neighboring lines in the result.
  DotOperand(Elements* elements, const hlo::Instruction& dot, int64_t operand, tensor::Dims lines, int64_t stride);

  int64_t lines() const { return tensor::Product(line_.sizes); }
  // The matrix at these indices of the other dimensions. The indices of its own dimensions are ignored. `first` is
  // added to the part of each line in the position of an element of the result (ProductMatrix::place). This object must
  // outlive the matrix.
  ProductMatrix At(const Values& at, llvm::Value* first) const;

 private:
  // Dimensions that one linear position covers. For operands in memory, adjacent dimensions are merged.
  struct Positions {
    tensor::Dims dims, sizes;
    tensor::Dims merged_sizes, merged_strides;
  };
  Positions PositionsOf(const tensor::Dims& dims) const;
  llvm::Value* Offset(const Positions& positions, llvm::Value* linear) const;
  // The element at an offset of the array.
  llvm::Value* Load(llvm::Value* offset) const;
  llvm::Value* Compute(Values at, llvm::Value* line, llvm::Value* depth) const;

  Elements& elements_;
  const hlo::Instruction& dot_;
  int64_t operand_;
  const ArrayView* array_;  // Null if the operand is computed.
  int64_t stride_;
  Positions line_, depth_;
};

// Whether blocks are faster than sums of single elements or rows.
bool PrefersBlocks(const KernelContext& kernel, const hlo::Instruction& dot);
void EmitBlockedDot(KernelContext& kernel, const hlo::Instruction& dot);

}  // namespace xlad::compiler
