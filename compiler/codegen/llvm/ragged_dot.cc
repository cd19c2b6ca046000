// ragged-dot: a dot whose rows, or whose summation range, are divided into groups of sizes given at run time.
//
//   rows:       result[.., r, ..] uses rhs[g] for the group g that row r is in; rows beyond all groups are 0
//   summation:  result[g, ..] sums over the positions of group g only
//   batch:      an ordinary dot
#include <llvm/IR/Intrinsics.h>

#include "base/containers.h"
#include "compiler/analysis/score_space.h"
#include "compiler/codegen/llvm/blocked_dot.h"
#include "hlo/analysis/counts.h"

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

// The first position and the size of group `mine`.
std::pair<llvm::Value*, llvm::Value*> FindGroup(Ir& ir, Groups& groups, llvm::Value* mine) {
  IrBuilder& b = ir.b;
  llvm::Type* i64 = b.getInt64Ty();
  llvm::Value* start = ir.Slot(i64);
  llvm::Value* count = ir.Slot(i64);
  b.CreateStore(ir.I64(0), start);
  b.CreateStore(ir.I64(0), count);
  groups.ForEach([&](llvm::Value* group, llvm::Value* first, llvm::Value* size) {
    llvm::Value* is_mine = b.CreateICmpEQ(group, mine);
    b.CreateStore(b.CreateSelect(is_mine, first, b.CreateLoad(i64, start)), start);
    b.CreateStore(b.CreateSelect(is_mine, size, b.CreateLoad(i64, count)), count);
  });
  return {b.CreateLoad(i64, start), b.CreateLoad(i64, count)};
}

// Each row of blocks is divided at the boundaries of groups. Only the ragged dimension has rows; the other free
// dimensions of lhs are outer dimensions, like batch dimensions.
class RaggedRows {
 public:
  RaggedRows(KernelContext* kernel, const Instruction& dot)
      : kernel_(*kernel), ir_(kernel->ir()), dot_(dot), ragged_(dot.attributes().ragged_dims[0]) {
    const hlo::DotDimensions& n = *dot.attributes().dot;
    // The dimension of the result that is the ragged dimension of lhs.
    result_dim_ = std::ssize(n.lhs_batch);
    for (int64_t d = 0; d < ragged_; ++d) {
      if (!Contains(n.lhs_batch, d) && !Contains(n.lhs_contracting, d)) ++result_dim_;
    }
  }

  void Emit() {
    const Dims& dims = dot_.shape().dims();
    const Dims free = FreeDimensionsOf(dot_).rhs;
    const DotOperand rhs(&kernel_.elements(), dot_, 1, free, 1);
    const DotOperand lhs(&kernel_.elements(), dot_, 0, {ragged_}, tensor::Strides(dims)[result_dim_]);
    BlockedProduct product(&kernel_, dot_,
                           {dot_.shape().elements() / (lhs.lines() * rhs.lines()), lhs.lines(), rhs.lines(),
                            static_cast<int64_t>(hlo::ContractedElements(dot_)), true});
    const int64_t outer_dims = std::ssize(dims) - std::ssize(free);
    Dims pieces(dims.begin(), dims.begin() + outer_dims);
    pieces[result_dim_] = product.row_blocks();
    pieces.push_back(product.column_blocks());
    kernel_.Divide(TileRows(pieces, kernel_.wanted_tiles()));
    ForPositions(ir_, kernel_.range(), pieces, [&](const Index& position) {
      Values at = DimsOf(ir_, position, pieces), out(dims.size(), ir_.I64(0));
      std::copy(at.begin(), at.begin() + outer_dims, out.begin());
      out[result_dim_] = ir_.I64(0);
      llvm::Value* first = LinearOf(ir_, Index::Of(out), dims);
      const LineRange rows = product.RowsOf(at[result_dim_]), columns = product.ColumnsOf(at.back());
      Clear(first, rows, columns);
      ForGroups(rows, [&](llvm::Value* group, const LineRange& in_group) {
        const DotIndices outer = PlaceOfDot(dot_, out, group);
        product.Emit({lhs.At(outer.lhs, first), rhs.At(outer.rhs, ir_.I64(0)), in_group, columns});
      });
    });
  }

 private:
  // Rows that are in no group are zero.
  void Clear(llvm::Value* first, const LineRange& rows, const LineRange& columns) {
    const int64_t stride = tensor::Strides(dot_.shape().dims())[result_dim_];
    llvm::Value* zero = llvm::Constant::getNullValue(RegisterType(ir_.context(), dot_.shape().type()));
    ir_.RangeLoop(rows.begin, rows.end, [&](llvm::Value* row) {
      llvm::Value* in_row = ir_.Add(first, ir_.Mul(row, stride));
      ir_.RangeLoop(columns.begin, columns.end, [&](llvm::Value* column) {
        StoreTo(ir_, kernel_.outputs()[0].array, Index::OfLinear(ir_.Add(in_row, column)), zero);
      });
    });
  }

  // Emits `body` for each group that has some of the rows, with these rows.
  void ForGroups(const LineRange& rows, const std::function<void(llvm::Value*, const LineRange&)>& body) {
    IrBuilder& b = ir_.b;
    Groups groups(&kernel_.elements(), dot_);
    groups.ForEach([&](llvm::Value* group, llvm::Value* start, llvm::Value* size) {
      llvm::Value* begin = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, start, rows.begin);
      llvm::Value* end = Smaller(ir_, b.CreateAdd(start, size), rows.end);
      ir_.If(b.CreateICmpSLT(begin, end), [&] { body(group, {begin, end}); });
    });
  }

  KernelContext& kernel_;
  Ir& ir_;
  const Instruction& dot_;
  const int64_t ragged_;
  int64_t result_dim_ = 0;
};

// The groups are an outer dimension of the result, and each sums over its part of the depth.
void EmitRaggedDepth(KernelContext& kernel, const Instruction& dot) {
  Ir& ir = kernel.ir();
  const Dims& dims = dot.shape().dims();
  const int64_t depth = dot.operand(0)->shape().dim(dot.attributes().ragged_dims[0]);
  const size_t outer_dims = 1 + dot.attributes().dot->lhs_batch.size();
  const FreeDimensions free = FreeDimensionsOf(dot);
  const DotOperand rhs(&kernel.elements(), dot, 1, free.rhs, 1);
  const DotOperand lhs(&kernel.elements(), dot, 0, free.lhs, rhs.lines());
  BlockedProduct product(&kernel, dot,
                         {dot.shape().elements() / (lhs.lines() * rhs.lines()), lhs.lines(), rhs.lines(), depth});
  Dims pieces(dims.begin(), dims.begin() + outer_dims);
  pieces.push_back(product.row_blocks());
  pieces.push_back(product.column_blocks());
  kernel.Divide(TileRows(pieces, kernel.wanted_tiles()));
  ForPositions(ir, kernel.range(), pieces, [&](const Index& position) {
    Values at = DimsOf(ir, position, pieces), out(dims.size(), ir.I64(0));
    std::copy(at.begin(), at.begin() + outer_dims, out.begin());
    Groups groups(&kernel.elements(), dot);
    const auto [start, size] = FindGroup(ir, groups, out[0]);
    llvm::Value* limit = ir.I64(depth);
    const LineRange part{Smaller(ir, start, limit), Smaller(ir, ir.b.CreateAdd(start, size), limit)};
    const Values in_group(out.begin() + 1, out.end());
    const DotIndices outer = PlaceOfDot(dot, in_group);
    product.Emit({lhs.At(outer.lhs, LinearOf(ir, Index::Of(out), dims)), rhs.At(outer.rhs, ir.I64(0)),
                  product.RowsOf(at[outer_dims]), product.ColumnsOf(at[outer_dims + 1]), &part});
  });
}

}  // namespace

Values EmitRaggedDot(Elements& elements, const Instruction& dot, const Index& index) {
  Ir& ir = elements.ir();
  IrBuilder& b = ir.b;
  const hlo::DotDimensions& n = *dot.attributes().dot;
  const int64_t ragged = dot.attributes().ragged_dims[0];
  Values out = DimsOf(ir, index, dot.shape().dims());
  if (Contains(n.lhs_batch, ragged)) return {EmitContraction(elements, dot, PlaceOfDot(dot, out))};
  Groups groups(&elements, dot);
  llvm::Type* i64 = b.getInt64Ty();
  if (Contains(n.lhs_contracting, ragged)) {
    llvm::Value* mine = out.front();
    out.erase(out.begin());
    const auto [start, count] = FindGroup(ir, groups, mine);
    llvm::Value* first = start;
    llvm::Value* size = count;
    return {EmitContraction(elements, dot, PlaceOfDot(dot, out), [&](const Values& lhs) {
      return b.CreateICmpULT(b.CreateSub(lhs[ragged], first), size);
    })};
  }
  // The group of this row. A row that is not in any group uses group 0 and an empty sum.
  llvm::Value* row = PlaceOfDot(dot, out, ir.I64(0)).lhs[ragged];
  llvm::Value* found = ir.Slot(i64);
  b.CreateStore(ir.I64(-1), found);
  groups.ForEach([&](llvm::Value* group, llvm::Value* first, llvm::Value* size) {
    llvm::Value* inside = b.CreateICmpULT(b.CreateSub(row, first), size);
    b.CreateStore(b.CreateSelect(inside, group, b.CreateLoad(i64, found)), found);
  });
  llvm::Value* group = b.CreateLoad(i64, found);
  llvm::Value* in_some = b.CreateICmpSGE(group, ir.I64(0));
  llvm::Value* safe = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, group, ir.I64(0));
  return {EmitContraction(elements, dot, PlaceOfDot(dot, out, safe), [&](const Values&) { return in_some; })};
}

void EmitRaggedDotKernel(KernelContext& kernel, const Instruction& dot) {
  const hlo::DotDimensions& n = *dot.attributes().dot;
  const int64_t ragged = dot.attributes().ragged_dims[0];
  if (Contains(n.lhs_batch, ragged)) return EmitDot(kernel, dot);
  const bool by_depth = Contains(n.lhs_contracting, ragged);
  // With several contracting dimensions, the depth of a group is not contiguous.
  const bool is_contiguous = !by_depth || n.lhs_contracting.size() == 1;
  if (!is_contiguous || !kernel.has_vectors() || dot.shape().elements() == 0) return EmitLoops(kernel);
  if (by_depth) return EmitRaggedDepth(kernel, dot);
  RaggedRows(&kernel, dot).Emit();
}

}  // namespace xlad::compiler
