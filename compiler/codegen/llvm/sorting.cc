// Kernels for sort and topk.
//
// Sort is a stable bottom-up merge sort of positions along one dimension. The comparator is inlined and reads the
// elements of the operands at two positions. Elements are moved once, at the end.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "compiler/codegen/llvm/convert_ops.h"
#include "compiler/codegen/llvm/kernel.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;
using tensor::ElementType;

// Up to this k, topk selects elements by insertion; beyond, it sorts.
constexpr int64_t kFew = 64;
// Every tile has scratch memory of its own.
constexpr int64_t kMaxTilesWithScratch = 64;

// Whether the element at position i comes strictly before the one at position j.
using Before = std::function<llvm::Value*(llvm::Value* i, llvm::Value* j)>;

llvm::Value* LoadPosition(Ir& ir, llvm::Value* base, llvm::Value* at) {
  return ir.b.CreateLoad(ir.b.getInt64Ty(), ir.Address(ir.b.getInt64Ty(), base, at));
}

void StorePosition(Ir& ir, llvm::Value* base, llvm::Value* at, llvm::Value* value) {
  ir.b.CreateStore(value, ir.Address(ir.b.getInt64Ty(), base, at));
}

// Merges runs [begin, middle) and [middle, end) of `from` into `to`. Equal elements keep their order.
void Merge(Ir& ir, llvm::Value* from, llvm::Value* to, const Values& bounds, const Before& before) {
  IrBuilder& b = ir.b;
  llvm::Type* i64 = b.getInt64Ty();
  llvm::Value* left = ir.Slot(i64);
  llvm::Value* right = ir.Slot(i64);
  llvm::Value* out = ir.Slot(i64);
  b.CreateStore(bounds[0], left);
  b.CreateStore(bounds[1], right);
  b.CreateStore(bounds[0], out);
  const auto take = [&](llvm::Value* side) {
    llvm::Value* i = b.CreateLoad(i64, side);
    llvm::Value* o = b.CreateLoad(i64, out);
    StorePosition(ir, to, o, LoadPosition(ir, from, i));
    b.CreateStore(b.CreateAdd(i, ir.I64(1)), side);
    b.CreateStore(b.CreateAdd(o, ir.I64(1)), out);
  };
  ir.While(
      [&] {
        return b.CreateAnd(b.CreateICmpSLT(b.CreateLoad(i64, left), bounds[1]),
                           b.CreateICmpSLT(b.CreateLoad(i64, right), bounds[2]));
      },
      [&] {
        llvm::Value* l = LoadPosition(ir, from, b.CreateLoad(i64, left));
        llvm::Value* r = LoadPosition(ir, from, b.CreateLoad(i64, right));
        ir.If(before(r, l), [&] { take(right); }, [&] { take(left); });
      });
  ir.While([&] { return b.CreateICmpSLT(b.CreateLoad(i64, left), bounds[1]); }, [&] { take(left); });
  ir.While([&] { return b.CreateICmpSLT(b.CreateLoad(i64, right), bounds[2]); }, [&] { take(right); });
}

// Sorts positions 0 .. count-1; returns the array (one of the two) that holds them in order.
llvm::Value* SortPositions(Ir& ir, int64_t count, llvm::Value* first, llvm::Value* second, const Before& before) {
  IrBuilder& b = ir.b;
  llvm::Type* i64 = b.getInt64Ty();
  llvm::Type* pointer = b.getPtrTy();
  ir.Loop(count, [&](llvm::Value* i) { StorePosition(ir, first, i, i); });
  if (count < 2) return first;
  llvm::Value* run = ir.Slot(i64);
  llvm::Value* from = ir.Slot(pointer);
  llvm::Value* to = ir.Slot(pointer);
  b.CreateStore(ir.I64(1), run);
  b.CreateStore(first, from);
  b.CreateStore(second, to);
  ir.While([&] { return b.CreateICmpSLT(b.CreateLoad(i64, run), ir.I64(count)); },
           [&] {
             llvm::Value* width = b.CreateLoad(i64, run);
             llvm::Value* both = b.CreateShl(width, 1);
             llvm::Value* source = b.CreateLoad(pointer, from);
             llvm::Value* target = b.CreateLoad(pointer, to);
             llvm::Value* pairs = b.CreateUDiv(b.CreateAdd(both, ir.I64(count - 1)), both);
             ir.DynamicLoop(pairs, [&](llvm::Value* pair) {
               llvm::Value* begin = b.CreateMul(pair, both);
               llvm::Value* middle = ir.Clamp(b.CreateAdd(begin, width), 0, count);
               llvm::Value* end = ir.Clamp(b.CreateAdd(begin, both), 0, count);
               Merge(ir, source, target, {begin, middle, end}, before);
             });
             b.CreateStore(both, run);
             b.CreateStore(target, from);
             b.CreateStore(source, to);
           });
  return b.CreateLoad(pointer, from);
}

// The index of the element at a position of the row.
using PlaceInRow = std::function<Index(llvm::Value* position)>;

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

}  // namespace

void EmitSort(KernelContext& kernel, const Instruction& root) {
  Ir& ir = kernel.ir();
  Elements& elements = kernel.elements();
  const std::vector<Output> outputs = kernel.outputs();
  const Dims& sizes = outputs[0].array.shape.dims;
  const size_t along = root.dimensions().empty() ? 0 : root.dimensions()[0];
  const int64_t count = sizes[along];
  DivideRows(kernel, sizes, along);
  const ArrayView first = kernel.ScratchOfTile({ElementType::kS64, {count}});
  const ArrayView second = kernel.ScratchOfTile({ElementType::kS64, {count}});
  ForEachRow(kernel, sizes, along, [&](const PlaceInRow& at) {
    const Before before = [&](llvm::Value* i, llvm::Value* j) {
      Values arguments;
      for (const Instruction* operand : root.operands()) {
        arguments.push_back(elements.Emit(operand, at(i)));
        arguments.push_back(elements.Emit(operand, at(j)));
      }
      return elements.Apply(*root.called()[0], arguments)[0];
    };
    llvm::Value* order = SortPositions(ir, count, first.base, second.base, before);
    ir.Loop(count, [&](llvm::Value* i) {
      const Index from = at(LoadPosition(ir, order, i));
      for (size_t o = 0; o < outputs.size(); ++o) {
        StoreTo(ir, outputs[o].array, at(i), elements.Emit(root.operand(o), from));
      }
    });
  });
}

// Writes the first `k` of positions 0 .. count-1, in order, into `best`, by insertion into the best so far. Most
// elements of a long row come after all of them and cost one comparison.
void SelectPositions(Ir& ir, int64_t count, int64_t k, llvm::Value* best, const Before& before) {
  IrBuilder& b = ir.b;
  llvm::Type* i64 = b.getInt64Ty();
  // Entries that are not set yet may hold any valid position: it is read, but the comparison with it is ignored.
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

// The k largest (or smallest) elements of each row with their positions, in order. Equal elements are ordered by
// position, floats by IEEE 754's total order.
void EmitTopk(KernelContext& kernel, const Instruction& root) {
  Ir& ir = kernel.ir();
  IrBuilder& b = ir.b;
  const Instruction* operand = root.operand(0);
  const std::vector<Output> outputs = kernel.outputs();
  const Dims& sizes = operand->shape().dims();
  const size_t along = sizes.size() - 1;
  const int64_t k = outputs[0].array.shape.dims[along];
  const ElementType type = operand->shape().type();
  const bool largest = root.attributes().largest;
  const bool is_few = k <= kFew && 4 * k <= sizes[along];
  DivideRows(kernel, sizes, along);
  const ArrayView first = kernel.ScratchOfTile({ElementType::kS64, {is_few ? k : sizes[along]}});
  const ArrayView second = kernel.ScratchOfTile({ElementType::kS64, {is_few ? 0 : sizes[along]}});
  ForEachRow(kernel, sizes, along, [&](const PlaceInRow& at) {
    const Before before = [&](llvm::Value* i, llvm::Value* j) {
      llvm::Value* x = kernel.elements().Emit(operand, at(i));
      llvm::Value* y = kernel.elements().Emit(operand, at(j));
      if (!largest) std::swap(x, y);
      if (tensor::IsFloating(type)) return b.CreateICmpSGT(TotalOrderKey(b, type, x), TotalOrderKey(b, type, y));
      return tensor::IsSigned(type) ? b.CreateICmpSGT(x, y) : b.CreateICmpUGT(x, y);
    };
    llvm::Value* order = first.base;
    if (is_few) {
      if (k > 0) SelectPositions(ir, sizes[along], k, first.base, before);
    } else {
      order = SortPositions(ir, sizes[along], first.base, second.base, before);
    }
    ir.Loop(k, [&](llvm::Value* i) {
      llvm::Value* position = LoadPosition(ir, order, i);
      StoreTo(ir, outputs[0].array, at(i), kernel.elements().Emit(operand, at(position)));
      llvm::Type* index = RegisterType(ir.context(), outputs[1].array.shape.type);
      StoreTo(ir, outputs[1].array, at(i), b.CreateTrunc(position, index));
    });
  });
}

}  // namespace xlad::compiler
