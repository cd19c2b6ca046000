// ragged-dot: a dot whose rows, or whose summation range, are divided into groups of sizes given at run time.
//
//   rows:       result[.., r, ..] uses rhs[g] for the group g that row r is in; rows beyond all groups are 0
//   summation:  result[g, ..] sums over the positions of group g only
//   batch:      an ordinary dot
#include <llvm/IR/Intrinsics.h>

#include "base/containers.h"
#include "compiler/codegen/llvm/element_rules.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;

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

}  // namespace xlad::compiler
