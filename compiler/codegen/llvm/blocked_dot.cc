#include "compiler/codegen/llvm/blocked_dot.h"

#include <algorithm>

#include "base/containers.h"
#include "compiler/analysis/kernel_cost.h"
#include "compiler/analysis/score_space.h"
#include "compiler/codegen/llvm/convert_ops.h"
#include "hlo/analysis/counts.h"
#include "tensor/small_float.h"

namespace xlad::compiler {

using hlo::Instruction;
using tensor::Dims;

DotOperand::DotOperand(Elements* elements, const Instruction& dot, int64_t operand, Dims lines, int64_t stride)
    : elements_(*elements),
      dot_(dot),
      operand_(operand),
      array_(elements->ArrayOf(dot.operand(operand))),
      stride_(stride) {
  const hlo::DotDimensions& n = *dot.attributes().dot;
  line_ = PositionsOf(lines);
  depth_ = PositionsOf(operand == 0 ? n.lhs_contracting : n.rhs_contracting);
}

DotOperand::Positions DotOperand::PositionsOf(const Dims& dims) const {
  const Dims& sizes = dot_.operand(operand_)->shape().dims();
  const Dims strides = tensor::Strides(sizes);
  Positions result{dims, tensor::Select(sizes, dims), {}, {}};
  for (const int64_t d : dims) {
    if (sizes[d] == 1) continue;
    if (!result.merged_sizes.empty() && result.merged_strides.back() == strides[d] * sizes[d]) {
      result.merged_sizes.back() *= sizes[d];
      result.merged_strides.back() = strides[d];
    } else {
      result.merged_sizes.push_back(sizes[d]);
      result.merged_strides.push_back(strides[d]);
    }
  }
  return result;
}

ProductMatrix DotOperand::At(const Values& at, llvm::Value* first) const {
  Ir& ir = elements_.ir();
  ProductMatrix matrix;
  matrix.place = [this, &ir, first](llvm::Value* line) { return ir.Add(first, ir.Mul(line, stride_)); };
  if (array_ == nullptr) {
    matrix.element = [this, at](llvm::Value* line, llvm::Value* depth) { return Compute(at, line, depth); };
    return matrix;
  }
  const auto last_stride = [](const Positions& p) { return p.merged_strides.empty() ? 0 : p.merged_strides.back(); };
  matrix.has_contiguous_lines = last_stride(depth_) == 1;
  const Dims strides = tensor::Strides(array_->shape.dims);
  llvm::Value* fixed = ir.I64(0);
  for (int64_t d = 0; d < std::ssize(at); ++d) {
    if (Contains(line_.dims, d) || Contains(depth_.dims, d)) continue;
    fixed = ir.Add(fixed, ir.Mul(at[d], strides[d]));
  }
  matrix.element = [this, &ir, fixed](llvm::Value* line, llvm::Value* depth) {
    return Load(ir.Add(ir.Add(fixed, Offset(depth_, depth)), Offset(line_, line)));
  };
  return matrix;
}

llvm::Value* DotOperand::Offset(const Positions& positions, llvm::Value* linear) const {
  Ir& ir = elements_.ir();
  const Values at = DimsOf(ir, Index::OfLinear(linear), positions.merged_sizes);
  llvm::Value* offset = ir.I64(0);
  for (size_t i = 0; i < at.size(); ++i) offset = ir.Add(offset, ir.Mul(at[i], positions.merged_strides[i]));
  return offset;
}

llvm::Value* DotOperand::Load(llvm::Value* offset) const {
  Ir& ir = elements_.ir();
  llvm::Value* value = LoadFrom(ir, *array_, Index::OfLinear(offset));
  return EmitConvert(ir, array_->shape.type, SumTypeOf(dot_.shape().type()), value);
}

llvm::Value* DotOperand::Compute(Values at, llvm::Value* line, llvm::Value* depth) const {
  for (const auto& [positions, linear] : {std::pair(&line_, line), std::pair(&depth_, depth)}) {
    const Values dims = DimsOf(elements_.ir(), Index::OfLinear(linear), positions->sizes);
    for (size_t i = 0; i < dims.size(); ++i) at[positions->dims[i]] = dims[i];
  }
  return EmitFactor(elements_, dot_, operand_, at);
}

bool PrefersBlocks(const KernelContext& kernel, const Instruction& dot) {
  return kernel.has_vectors() && IsWorthBlocks(dot);
}

void EmitBlockedDot(KernelContext& kernel, const Instruction& dot) {
  Ir& ir = kernel.ir();
  const FreeDimensions free = FreeDimensionsOf(dot);
  const DotOperand rhs(&kernel.elements(), dot, 1, free.rhs, 1);
  const DotOperand lhs(&kernel.elements(), dot, 0, free.lhs, rhs.lines());
  const Dims& dims = dot.shape().dims();
  const Dims batch(dims.begin(), dims.begin() + std::ssize(dot.attributes().dot->lhs_batch));
  BlockedProduct product(&kernel, dot, {tensor::Product(batch), lhs.lines(), rhs.lines(),
                                        static_cast<int64_t>(hlo::ContractedElements(dot))});
  product.ForBlocks(batch, [&](const Values& at, const LineRange& rows, const LineRange& columns) {
    Values out(dims.size(), ir.I64(0));
    std::copy(at.begin(), at.end(), out.begin());
    const DotIndices outer = PlaceOfDot(dot, out);
    product.Emit({lhs.At(outer.lhs, LinearOf(ir, Index::Of(out), dims)), rhs.At(outer.rhs, ir.I64(0)), rows, columns});
  });
}

}  // namespace xlad::compiler
