// dot, several columns at once.
//
// ragged-dot: a dot whose rows, or whose summation range, are divided into groups of sizes given at run time.
//
//   rows:       result[.., r, ..] uses rhs[g] for the group g that row r is in; rows beyond all groups are 0
//   summation:  result[g, ..] sums over the positions of group g only
//   batch:      an ordinary dot
#include <llvm/IR/Intrinsics.h>

#include <algorithm>

#include "base/containers.h"
#include "compiler/codegen/llvm/convert_ops.h"
#include "compiler/codegen/llvm/element_rules.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/reducer.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

// The group sizes, which are read at run time.
class Groups {
 public:
  Groups(Elements* elements, const Instruction& dot)
      : elements_(*elements),
        ir_(elements->ir()),
        sizes_(dot.operand(2)),
        limit_(dot.operand(0)->shape().dim(dot.attributes().ragged_dims[0])) {}

  llvm::Value* Size(llvm::Value* group) {
    return ClampedIndex(ir_, sizes_->shape().type(), elements_.Emit(sizes_, Index::Of({group})), limit_);
  }
  // Emits a loop over groups that calls `visit` with (group, first position, size).
  void ForEach(const std::function<void(llvm::Value*, llvm::Value*, llvm::Value*)>& visit) {
    llvm::Value* start = ir_.Slot(ir_.b.getInt64Ty());
    ir_.b.CreateStore(ir_.I64(0), start);
    ir_.Loop(sizes_->shape().elements(), [&](llvm::Value* group) {
      llvm::Value* first = ir_.b.CreateLoad(ir_.b.getInt64Ty(), start);
      llvm::Value* size = Size(group);
      visit(group, first, size);
      ir_.b.CreateStore(ir_.b.CreateAdd(first, size), start);
    });
  }

 private:
  Elements& elements_;
  Ir& ir_;
  const Instruction* sizes_;
  int64_t limit_;
};

// The indices of the operands for an output element. Entries of contracting dimensions are null.
struct OperandIndices {
  Values lhs, rhs;
};

// `out` does not have a leading group index. `group` is the index of rhs's group dimension, if rhs has one.
OperandIndices Place(const Instruction& dot, const Values& out, llvm::Value* group) {
  const hlo::DotDimensions& n = *dot.attributes().dot;
  const Dims& groups = dot.attributes().group_dims;
  OperandIndices at{Values(static_cast<size_t>(dot.operand(0)->shape().ndim())),
                    Values(static_cast<size_t>(dot.operand(1)->shape().ndim()))};
  if (group != nullptr) at.rhs[groups[0]] = group;
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

// Sums over the positions of the contracting dimensions for which `counts` returns true.
llvm::Value* Contract(Elements& elements, const Instruction& dot, const OperandIndices& at,
                      const std::function<llvm::Value*(const Values&)>& counts) {
  Ir& ir = elements.ir();
  const hlo::DotDimensions& n = *dot.attributes().dot;
  const ElementType type = dot.shape().type();
  Dims sizes;
  for (const int64_t d : n.lhs_contracting) sizes.push_back(dot.operand(0)->shape().dim(d));
  Accumulators sum(&ir, {{type, {}}});
  llvm::Value* zero = llvm::Constant::getNullValue(RegisterType(ir.context(), type));
  sum.Store({zero});
  ir.LoopNest(sizes, [&](const Values& inner) {
    OperandIndices here = at;
    for (size_t i = 0; i < inner.size(); ++i) {
      here.lhs[n.lhs_contracting[i]] = inner[i];
      here.rhs[n.rhs_contracting[i]] = inner[i];
    }
    const ElementType wide = Accumulating(type);
    llvm::Value* x = elements.Emit(dot.operand(0), Index::Of(here.lhs));
    llvm::Value* y = elements.Emit(dot.operand(1), Index::Of(here.rhs));
    llvm::Value* product = EmitProduct(ir, type, EmitConvert(ir, dot.operand(0)->shape().type(), wide, x),
                                       EmitConvert(ir, dot.operand(1)->shape().type(), wide, y));
    sum.Store({EmitSum(ir, type, sum.Load()[0], ir.b.CreateSelect(counts(here.lhs), product, zero))});
  });
  return RoundTo(ir.b, type, sum.Load()[0]);
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

// The sums of several columns are computed at once, as vectors. Each sum has the same order as in the element rule.
void EmitDot(KernelContext& kernel, const Instruction& dot) {
  if (kernel.has_threads() || !HasColumns(dot)) return EmitLoops(kernel);
  Ir& ir = kernel.ir();
  Elements& elements = kernel.elements();
  const Instruction *lhs = dot.operand(0), *rhs = dot.operand(1);
  const hlo::DotDimensions& n = *dot.attributes().dot;
  const ElementType type = dot.shape().type(), wide = Accumulating(type);
  const int64_t columns = dot.shape().dims().back(), width = std::min(columns, kColumnsAtOnce);
  // There is one position for each row of the result and each piece of its columns. If the last piece is shorter, it
  // begins earlier and writes the same values again.
  Dims pieces = dot.shape().dims(), contracted;
  pieces.back() = (columns + width - 1) / width;
  for (const int64_t d : n.lhs_contracting) contracted.push_back(lhs->shape().dim(d));
  kernel.Divide(TileRows(pieces, kernel.wanted_tiles()));
  ForPositions(ir, kernel.range(), pieces, [&](const Index& position) {
    Values out = DimsOf(ir, position, pieces);
    llvm::Value* first = ir.Mul(out.back(), width);
    if (columns % width != 0) first = ir.Clamp(first, 0, columns - width);
    out.back() = first;
    Accumulators sums(&ir, {{type, {}}}, width);
    llvm::Value* zero = llvm::Constant::getNullValue(RegisterType(ir.context(), type));
    ir.Loop(width, [&](llvm::Value* column) { sums.Store({zero}, column); });
    const OperandIndices row = Place(dot, out, nullptr);
    ir.LoopNest(contracted, [&](const Values& inner) {
      OperandIndices at = row;
      for (size_t i = 0; i < inner.size(); ++i) {
        at.lhs[n.lhs_contracting[i]] = inner[i];
        at.rhs[n.rhs_contracting[i]] = inner[i];
      }
      llvm::Value* x = EmitConvert(ir, lhs->shape().type(), wide, elements.Emit(lhs, Index::Of(at.lhs)));
      ir.Loop(width, [&](llvm::Value* column) {
        Values in_row = at.rhs;
        in_row.back() = ir.Add(first, column);
        llvm::Value* y = EmitConvert(ir, rhs->shape().type(), wide, elements.Emit(rhs, Index::Of(in_row)));
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

Values EmitRaggedDot(Elements& elements, const Instruction& dot, const Index& index) {
  Ir& ir = elements.ir();
  IrBuilder& b = ir.b;
  const hlo::DotDimensions& n = *dot.attributes().dot;
  const int64_t ragged = dot.attributes().ragged_dims[0];
  Values out = DimsOf(ir, index, dot.shape().dims());
  const auto always = [&](const Values&) -> llvm::Value* { return b.getTrue(); };
  if (Contains(n.lhs_batch, ragged)) return {Contract(elements, dot, Place(dot, out, nullptr), always)};
  Groups groups(&elements, dot);
  llvm::Type* i64 = b.getInt64Ty();
  if (Contains(n.lhs_contracting, ragged)) {
    llvm::Value* mine = out.front();
    out.erase(out.begin());
    llvm::Value* start = ir.Slot(i64);
    llvm::Value* count = ir.Slot(i64);
    b.CreateStore(ir.I64(0), start);
    b.CreateStore(ir.I64(0), count);
    groups.ForEach([&](llvm::Value* group, llvm::Value* first, llvm::Value* size) {
      llvm::Value* is_mine = b.CreateICmpEQ(group, mine);
      b.CreateStore(b.CreateSelect(is_mine, first, b.CreateLoad(i64, start)), start);
      b.CreateStore(b.CreateSelect(is_mine, size, b.CreateLoad(i64, count)), count);
    });
    llvm::Value* first = b.CreateLoad(i64, start);
    llvm::Value* size = b.CreateLoad(i64, count);
    return {Contract(elements, dot, Place(dot, out, nullptr), [&](const Values& lhs) {
      return b.CreateICmpULT(b.CreateSub(lhs[ragged], first), size);
    })};
  }
  // The group of this row. A row that is not in any group uses group 0 and an empty sum.
  llvm::Value* row = Place(dot, out, ir.I64(0)).lhs[ragged];
  llvm::Value* found = ir.Slot(i64);
  b.CreateStore(ir.I64(-1), found);
  groups.ForEach([&](llvm::Value* group, llvm::Value* first, llvm::Value* size) {
    llvm::Value* inside = b.CreateICmpULT(b.CreateSub(row, first), size);
    b.CreateStore(b.CreateSelect(inside, group, b.CreateLoad(i64, found)), found);
  });
  llvm::Value* group = b.CreateLoad(i64, found);
  llvm::Value* in_some = b.CreateICmpSGE(group, ir.I64(0));
  llvm::Value* safe = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, group, ir.I64(0));
  return {Contract(elements, dot, Place(dot, out, safe), [&](const Values&) { return in_some; })};
}

}  // namespace xlad::compiler
