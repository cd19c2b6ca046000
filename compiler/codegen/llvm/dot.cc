// dot: its element rule, several columns at once, and the parts that ragged-dot and convolution share.

#include <algorithm>

#include "base/containers.h"
#include "base/rounding.h"
#include "compiler/codegen/llvm/blocked_dot.h"
#include "compiler/codegen/llvm/convert_ops.h"
#include "compiler/codegen/llvm/element_rules.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/reducer.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

Dims ContractedSizes(const Instruction& dot) {
  Dims sizes;
  for (const int64_t d : dot.attributes().dot->lhs_contracting) sizes.push_back(dot.operand(0)->shape().dim(d));
  return sizes;
}

// Returns `at` with the indices of the contracting dimensions.
DotIndices WithContracted(const Instruction& dot, DotIndices at, const Values& contracted) {
  const hlo::DotDimensions& n = *dot.attributes().dot;
  for (size_t i = 0; i < contracted.size(); ++i) {
    at.lhs[n.lhs_contracting[i]] = contracted[i];
    at.rhs[n.rhs_contracting[i]] = contracted[i];
  }
  return at;
}

// The number of columns that are summed at once. Their sums are eight vectors of 8 f64 numbers.
constexpr int64_t kColumnsAtOnce = 64;
constexpr int64_t kMinColumns = 4;

// Whether the columns of the result, its last dimension, are neighbors in the memory of the right operand.
bool HasColumns(const Instruction& dot) {
  const Instruction& rhs = *dot.operand(1);
  const hlo::DotDimensions& n = *dot.attributes().dot;
  const int64_t last = rhs.shape().ndim() - 1;
  return dot.shape().elements() > 0 && last >= 0 && !Contains(n.rhs_contracting, last) &&
         !Contains(n.rhs_batch, last) && rhs.shape().dim(last) >= kMinColumns;
}

}  // namespace

llvm::Value* EmitProduct(Ir& ir, ElementType type, llvm::Value* x, llvm::Value* y) {
  if (tensor::IsComplex(type)) {
    IrBuilder& b = ir.b;
    llvm::Value* re = b.CreateFSub(b.CreateFMul(Real(b, x), Real(b, y)), b.CreateFMul(Imag(b, x), Imag(b, y)));
    llvm::Value* im = b.CreateFAdd(b.CreateFMul(Real(b, x), Imag(b, y)), b.CreateFMul(Imag(b, x), Real(b, y)));
    return MakeComplex(b, re, im);
  }
  if (tensor::IsFloating(type)) return ir.b.CreateFMul(x, y);
  return type == ElementType::kPred ? ir.b.CreateAnd(x, y) : ir.b.CreateMul(x, y);
}

llvm::Value* EmitSum(Ir& ir, ElementType type, llvm::Value* x, llvm::Value* y) {
  IrBuilder& b = ir.b;
  if (tensor::IsComplex(type)) {
    return MakeComplex(b, b.CreateFAdd(Real(b, x), Real(b, y)), b.CreateFAdd(Imag(b, x), Imag(b, y)));
  }
  if (!tensor::IsFloating(type)) return type == ElementType::kPred ? b.CreateOr(x, y) : b.CreateAdd(x, y);
  const llvm::IRBuilderBase::FastMathFlagGuard guard(b);
  llvm::FastMathFlags flags;
  flags.setAllowReassoc();
  b.setFastMathFlags(flags);
  return b.CreateFAdd(x, y);
}

llvm::Value* EmitFactor(Elements& elements, const Instruction& dot, int64_t operand, const Values& at) {
  const Instruction* factor = dot.operand(operand);
  llvm::Value* value = elements.Emit(factor, Index::Of(at));
  return EmitConvert(elements.ir(), factor->shape().type(), SumTypeOf(dot.shape().type()), value);
}

DotIndices PlaceOfDot(const Instruction& dot, const Values& out, llvm::Value* group) {
  const hlo::DotDimensions& n = *dot.attributes().dot;
  DotIndices at{Values(dot.operand(0)->shape().ndim()), Values(dot.operand(1)->shape().ndim())};
  if (group != nullptr) at.rhs[dot.attributes().group_dims[0]] = group;
  size_t next = 0;
  for (size_t i = 0; i < n.lhs_batch.size(); ++i, ++next) {
    at.lhs[n.lhs_batch[i]] = out[next];
    at.rhs[n.rhs_batch[i]] = out[next];
  }
  for (size_t d = 0; d < at.lhs.size(); ++d) {
    if (at.lhs[d] == nullptr && !Contains(n.lhs_contracting, d)) at.lhs[d] = out[next++];
  }
  for (size_t d = 0; d < at.rhs.size(); ++d) {
    if (at.rhs[d] == nullptr && !Contains(n.rhs_contracting, d)) at.rhs[d] = out[next++];
  }
  return at;
}

llvm::Value* EmitContraction(Elements& elements, const Instruction& dot, const DotIndices& at,
                             const std::function<llvm::Value*(const Values&)>& counts) {
  Ir& ir = elements.ir();
  const ElementType type = dot.shape().type();
  Accumulators sum(&ir, {{type, {}}});
  llvm::Value* zero = llvm::Constant::getNullValue(RegisterType(ir.context(), type));
  sum.Store({zero});
  ir.LoopNest(ContractedSizes(dot), [&](const Values& contracted) {
    const DotIndices here = WithContracted(dot, at, contracted);
    llvm::Value* x = EmitFactor(elements, dot, 0, here.lhs);
    llvm::Value* y = EmitFactor(elements, dot, 1, here.rhs);
    llvm::Value* before = sum.Load()[0];
    llvm::Value* product = EmitProduct(ir, type, x, y);
    if (counts != nullptr) product = ir.b.CreateSelect(counts(here.lhs), product, zero);
    sum.Store({EmitSum(ir, type, before, product)});
  });
  return RoundTo(ir.b, type, sum.Load()[0]);
}

Values EmitDotElement(Elements& elements, const Instruction& dot, const Index& index) {
  return {EmitContraction(elements, dot, PlaceOfDot(dot, DimsOf(elements.ir(), index, dot.shape().dims())))};
}

// The sums of several columns are computed at once, as vectors. Each sum has the same order as in the element rule.
void EmitDot(KernelContext& kernel, const Instruction& dot) {
  if (PrefersBlocks(kernel, dot)) return EmitBlockedDot(kernel, dot);
  if (kernel.has_threads() || !HasColumns(dot)) return EmitLoops(kernel);
  Ir& ir = kernel.ir();
  Elements& elements = kernel.elements();
  const ElementType type = dot.shape().type();
  const int64_t columns = dot.shape().dims().back(), width = std::min(columns, kColumnsAtOnce);
  // There is one position for each row of the result and each piece of its columns. If the last piece is shorter, it
  // begins earlier and writes the same values again.
  Dims pieces = dot.shape().dims();
  pieces.back() = CeilDiv(columns, width);
  kernel.Divide(TileRows(pieces, kernel.wanted_tiles()));
  ForPositions(ir, kernel.range(), pieces, [&](const Index& position) {
    Values out = DimsOf(ir, position, pieces);
    llvm::Value* first = ir.Mul(out.back(), width);
    if (columns % width != 0) first = ir.Clamp(first, 0, columns - width);
    out.back() = first;
    Accumulators sums(&ir, {{type, {}}}, width);
    llvm::Value* zero = llvm::Constant::getNullValue(RegisterType(ir.context(), type));
    ir.Loop(width, [&](llvm::Value* column) { sums.Store({zero}, column); });
    const DotIndices row = PlaceOfDot(dot, out);
    ir.LoopNest(ContractedSizes(dot), [&](const Values& contracted) {
      const DotIndices at = WithContracted(dot, row, contracted);
      llvm::Value* x = EmitFactor(elements, dot, 0, at.lhs);
      ir.Loop(width, [&](llvm::Value* column) {
        Values in_row = at.rhs;
        in_row.back() = ir.Add(first, column);
        llvm::Value* y = EmitFactor(elements, dot, 1, in_row);
        sums.Store({EmitSum(ir, type, sums.Load(column)[0], EmitProduct(ir, type, x, y))}, column);
      });
    });
    ir.Loop(width, [&](llvm::Value* column) {
      Values place = out;
      place.back() = ir.Add(first, column);
      StoreTo(ir, kernel.outputs()[0].array, Index::Of(place), RoundTo(ir.b, type, sums.Load(column)[0]));
    });
  });
}

}  // namespace xlad::compiler
