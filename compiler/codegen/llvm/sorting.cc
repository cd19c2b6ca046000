// Kernels for sort and topk in which one thread sorts row by row: by a network (sort_network.h) if possible, otherwise
// by a stable bottom-up merge sort.
#include "compiler/codegen/llvm/sorting.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/powers_of_two.h"
#include "compiler/codegen/llvm/convert_ops.h"
#include "compiler/codegen/llvm/sort_network.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::Dims;
using tensor::ElementType;

// Up to this k, topk selects elements by insertion if k is at most a quarter of the row. Otherwise, it sorts.
constexpr int64_t kFew = 64;

}  // namespace

size_t SortedDimension(const Instruction& root) {
  if (root.opcode() == Opcode::kTopk) return root.operand(0)->shape().dims().size() - 1;
  return root.dimensions().empty() ? 0 : root.dimensions()[0];
}

Before OrderOf(KernelContext& kernel, const Instruction& root, const PlaceInRow& at) {
  Elements& elements = kernel.elements();
  if (root.opcode() == Opcode::kSort) {
    return [&elements, &root, at](llvm::Value* i, llvm::Value* j) {
      Values arguments;
      for (const Instruction* operand : root.operands()) {
        arguments.push_back(elements.Emit(operand, at(i)));
        arguments.push_back(elements.Emit(operand, at(j)));
      }
      return elements.Apply(*root.called()[0], arguments)[0];
    };
  }
  return [&elements, &root, at](llvm::Value* i, llvm::Value* j) {
    IrBuilder& b = elements.ir().b;
    const ElementType type = root.operand(0)->shape().type();
    llvm::Value* x = elements.Emit(root.operand(0), at(i));
    llvm::Value* y = elements.Emit(root.operand(0), at(j));
    if (!root.attributes().largest) std::swap(x, y);
    if (tensor::IsFloating(type)) return b.CreateICmpSGT(TotalOrderKey(b, type, x), TotalOrderKey(b, type, y));
    return tensor::IsSigned(type) ? b.CreateICmpSGT(x, y) : b.CreateICmpUGT(x, y);
  };
}

void StoreRanked(KernelContext& kernel, const Instruction& root, const PlaceInRow& at, llvm::Value* rank,
                 llvm::Value* position) {
  Ir& ir = kernel.ir();
  const std::vector<Output>& outputs = kernel.outputs();
  const Index from = at(position), to = at(rank);
  for (int64_t i = 0; i < root.operand_count(); ++i) {
    StoreTo(ir, outputs[i].array, to, kernel.elements().Emit(root.operand(i), from));
  }
  if (root.opcode() != Opcode::kTopk) return;
  llvm::Type* index = RegisterType(ir.context(), outputs[1].array.shape.type);
  StoreTo(ir, outputs[1].array, to, ir.b.CreateTrunc(position, index));
}

ElementType PositionType(int64_t row_size) {
  return row_size <= std::numeric_limits<int32_t>::max() ? ElementType::kS32 : ElementType::kS64;
}

llvm::Value* LoadPosition(Ir& ir, const Positions& from, llvm::Value* at) {
  llvm::Type* type = StorageType(ir.context(), from.type);
  return ir.b.CreateSExt(ir.b.CreateLoad(type, ir.Address(type, from.base, at)), ir.b.getInt64Ty());
}

void StorePosition(Ir& ir, const Positions& to, llvm::Value* at, llvm::Value* position) {
  llvm::Type* type = StorageType(ir.context(), to.type);
  ir.b.CreateStore(ir.b.CreateTrunc(position, type), ir.Address(type, to.base, at));
}

void Merge(Ir& ir, const Positions& from, const Positions& to, const Runs& runs, const Before& before) {
  IrBuilder& b = ir.b;
  llvm::Type* i64 = b.getInt64Ty();
  llvm::Value* left = ir.Slot(i64);
  llvm::Value* right = ir.Slot(i64);
  llvm::Value* out = ir.Slot(i64);
  b.CreateStore(runs.left_begin, left);
  b.CreateStore(runs.right_begin, right);
  b.CreateStore(runs.out, out);
  const auto has_left = [&] { return b.CreateICmpSLT(b.CreateLoad(i64, left), runs.left_end); };
  const auto has_right = [&] { return b.CreateICmpSLT(b.CreateLoad(i64, right), runs.right_end); };
  const auto take = [&](llvm::Value* side) {
    llvm::Value* i = b.CreateLoad(i64, side);
    llvm::Value* o = b.CreateLoad(i64, out);
    StorePosition(ir, to, o, LoadPosition(ir, from, i));
    b.CreateStore(b.CreateAdd(i, ir.I64(1)), side);
    b.CreateStore(b.CreateAdd(o, ir.I64(1)), out);
  };
  ir.While([&] { return b.CreateAnd(has_left(), has_right()); },
           [&] {
             llvm::Value* l = LoadPosition(ir, from, b.CreateLoad(i64, left));
             llvm::Value* r = LoadPosition(ir, from, b.CreateLoad(i64, right));
             ir.If(before(r, l), [&] { take(right); }, [&] { take(left); });
           });
  ir.While(has_left, [&] { take(left); });
  ir.While(has_right, [&] { take(right); });
}

int SortedIn(int64_t limit) { return CeilLog2(limit) % 2; }

void SortPositions(Ir& ir, const PositionRange& range, const std::array<Positions, 2>& arrays, const Before& before) {
  IrBuilder& b = ir.b;
  llvm::Type* i64 = b.getInt64Ty();
  llvm::Type* pointer = b.getPtrTy();
  llvm::Value* size = b.CreateSub(range.end, range.begin);
  ir.DynamicLoop(size, [&](llvm::Value* i) {
    llvm::Value* position = b.CreateAdd(range.begin, i);
    StorePosition(ir, arrays[0], position, position);
  });
  if (CeilLog2(range.limit) == 0) return;
  llvm::Value* run = ir.Slot(i64);
  llvm::Value* from = ir.Slot(pointer);
  llvm::Value* to = ir.Slot(pointer);
  b.CreateStore(ir.I64(1), run);
  b.CreateStore(arrays[0].base, from);
  b.CreateStore(arrays[1].base, to);
  ir.While(
      [&] { return b.CreateICmpSLT(b.CreateLoad(i64, run), ir.I64(range.limit)); },
      [&] {
        llvm::Value* width = b.CreateLoad(i64, run);
        llvm::Value* both = b.CreateShl(width, 1);
        llvm::Value* source = b.CreateLoad(pointer, from);
        llvm::Value* target = b.CreateLoad(pointer, to);
        llvm::Value* pairs = b.CreateUDiv(b.CreateAdd(size, b.CreateSub(both, ir.I64(1))), both);
        const auto up_to = [&](llvm::Value* x) { return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, range.end); };
        ir.DynamicLoop(pairs, [&](llvm::Value* pair) {
          llvm::Value* begin = b.CreateAdd(range.begin, b.CreateMul(pair, both));
          llvm::Value* middle = up_to(b.CreateAdd(begin, width));
          llvm::Value* end = up_to(b.CreateAdd(begin, both));
          Merge(ir, {source, arrays[0].type}, {target, arrays[0].type}, {begin, middle, middle, end, begin}, before);
        });
        b.CreateStore(both, run);
        b.CreateStore(target, from);
        b.CreateStore(source, to);
      });
}

namespace {

// Memory of a tile for `elements` positions of rows of `row_size` elements.
Positions PositionsOfTile(KernelContext& kernel, int64_t row_size, int64_t elements) {
  const ElementType type = PositionType(row_size);
  return {kernel.ScratchOfTile({type, {elements}}).base, type};
}

// Divides the rows along dimension `along` of an array of these sizes among tiles.
void DivideRows(KernelContext& kernel, Dims sizes, size_t along) {
  sizes[along] = 1;
  kernel.Divide(TileRows(sizes, std::min(kernel.wanted_tiles(), kMaxTilesWithScratch)));
}

// Emits loops over the rows of the tile, with `body` for each row.
void ForEachRow(KernelContext& kernel, Dims sizes, size_t along, const std::function<void(const PlaceInRow&)>& body) {
  sizes[along] = 1;
  ForPositions(kernel.ir(), kernel.range(), sizes, [&](const Index& row) {
    const Values at = DimsOf(kernel.ir(), row, sizes);
    body([&](llvm::Value* position) {
      Values dims = at;
      dims[along] = position;
      return Index::Of(dims);
    });
  });
}

std::optional<KeyOrder> NetworkOrder(const KernelContext& kernel, const Instruction& root) {
  return kernel.has_vectors() ? FindKeyOrder(root) : std::nullopt;
}

}  // namespace

void EmitSort(KernelContext& kernel, const Instruction& root) {
  if (const auto order = NetworkOrder(kernel, root)) return EmitSortNetwork(kernel, root, *order);
  Ir& ir = kernel.ir();
  const Dims sizes = kernel.outputs()[0].array.shape.dims;
  const size_t along = SortedDimension(root);
  const int64_t count = sizes[along];
  DivideRows(kernel, sizes, along);
  const std::array<Positions, 2> arrays = {PositionsOfTile(kernel, count, count),
                                           PositionsOfTile(kernel, count, count)};
  ForEachRow(kernel, sizes, along, [&](const PlaceInRow& at) {
    SortPositions(ir, {ir.I64(0), ir.I64(count), count}, arrays, OrderOf(kernel, root, at));
    const Positions& order = arrays[SortedIn(count)];
    ir.Loop(count, [&](llvm::Value* i) { StoreRanked(kernel, root, at, i, LoadPosition(ir, order, i)); });
  });
}

namespace {

// Writes the first `k` of the sorted positions 0 .. count-1 into `best`. Each position is inserted into the best
// positions so far. Most elements of a long row come after all of these, and need only one comparison.
void SelectPositions(Ir& ir, int64_t count, int64_t k, const Positions& best, const Before& before) {
  IrBuilder& b = ir.b;
  llvm::Type* i64 = b.getInt64Ty();
  // An entry that is not set yet may have any valid position. Its element is read, but the result of the comparison is
  // ignored.
  ir.Loop(k, [&](llvm::Value* i) { StorePosition(ir, best, i, ir.I64(0)); });
  llvm::Value* hole = ir.Slot(i64);
  ir.Loop(count, [&](llvm::Value* i) {
    llvm::Value* is_filling = b.CreateICmpSLT(i, ir.I64(k));
    llvm::Value* last = LoadPosition(ir, best, ir.I64(k - 1));
    ir.If(b.CreateOr(is_filling, before(i, last)), [&] {
      b.CreateStore(b.CreateSelect(is_filling, i, ir.I64(k - 1)), hole);
      const auto above = [&] {
        llvm::Value* at = b.CreateSub(b.CreateLoad(i64, hole), ir.I64(1));
        return LoadPosition(ir, best, b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, at, ir.I64(0)));
      };
      ir.While(
          [&] {
            llvm::Value* has_above = b.CreateICmpSGT(b.CreateLoad(i64, hole), ir.I64(0));
            return b.CreateAnd(has_above, before(i, above()));
          },
          [&] {
            llvm::Value* at = b.CreateLoad(i64, hole);
            StorePosition(ir, best, at, above());
            b.CreateStore(b.CreateSub(at, ir.I64(1)), hole);
          });
      StorePosition(ir, best, b.CreateLoad(i64, hole), i);
    });
  });
}

}  // namespace

// Emits a topk: the first k elements of each sorted row, with their positions.
void EmitTopk(KernelContext& kernel, const Instruction& root) {
  Ir& ir = kernel.ir();
  const Dims& sizes = root.operand(0)->shape().dims();
  const size_t along = SortedDimension(root);
  const int64_t count = sizes[along], k = kernel.outputs()[0].array.shape.dims[along];
  const bool is_few = k <= kFew && 4 * k <= count;
  const auto order_of_keys = is_few ? std::nullopt : NetworkOrder(kernel, root);
  if (order_of_keys) return EmitSortNetwork(kernel, root, *order_of_keys);
  DivideRows(kernel, sizes, along);
  const std::array<Positions, 2> arrays = {PositionsOfTile(kernel, count, is_few ? k : count),
                                           PositionsOfTile(kernel, count, is_few ? 0 : count)};
  ForEachRow(kernel, sizes, along, [&](const PlaceInRow& at) {
    const Before before = OrderOf(kernel, root, at);
    if (!is_few) SortPositions(ir, {ir.I64(0), ir.I64(count), count}, arrays, before);
    if (is_few && k > 0) SelectPositions(ir, count, k, arrays[0], before);
    const Positions& order = arrays[is_few ? 0 : SortedIn(count)];
    ir.Loop(k, [&](llvm::Value* i) { StoreRanked(kernel, root, at, i, LoadPosition(ir, order, i)); });
  });
}

}  // namespace xlad::compiler
