#include "compiler/codegen/nvptx/thread_transpose.h"

#include <algorithm>

#include "base/rounding.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kSide = 32, kThreads = 256;

// The size of the longer side of a tile whose other side has `narrow` elements. It is a multiple of 32, so that most
// tiles begin at a sector of memory.
int64_t LongSide(int64_t narrow, int64_t size) { return std::min(size, kSide * kSide / narrow / kSide * kSide); }

}  // namespace

std::optional<TileTranspose> TileTransposeOf(const KernelRequest& request) {
  // An array with fewer than kMinSide rows must have at least kMinLong columns, and vice versa.
  constexpr int64_t kMinSide = 8, kMinLong = 64;
  const hlo::Instruction& root = *request.root;
  const int64_t width = tensor::ByteWidth(root.shape().is_array() ? root.shape().type() : ElementType::kC128);
  if (root.opcode() != hlo::Opcode::kTranspose || !request.in_place.empty() || width > 8) return std::nullopt;
  if (root.shape().elements() == 0) return std::nullopt;
  TileTranspose result;
  result.outer = RunsOf(root.operand(0)->shape().dims(), root.dimensions());
  const auto row = std::find_if(result.outer.begin(), result.outer.end(), [](const Run& run) { return run.from == 1; });
  if (result.outer.size() < 2 || row == result.outer.end() || row == result.outer.end() - 1) return std::nullopt;
  result.rows = *row;
  result.columns = result.outer.back();
  const auto [narrow, wide] = std::minmax(result.rows.size, result.columns.size);
  if (narrow < 2 || (narrow < kMinSide && wide < kMinLong)) return std::nullopt;
  result.tile_rows = std::min(result.rows.size, kSide);
  result.tile_columns = std::min(result.columns.size, kSide);
  if (result.rows.size < kSide) {
    result.tile_columns = LongSide(result.rows.size, result.columns.size);
  } else if (result.columns.size < kSide) {
    result.tile_rows = LongSide(result.columns.size, result.rows.size);
  }
  result.outer.pop_back();
  result.outer.erase(row);
  return result;
}

void EmitTilePart(KernelContext& kernel, const TileTranspose& transpose, const ArrayView& operand, bool is_store,
                  SharedMemory* shared) {
  Ir& ir = kernel.ir();
  const ArrayView& result = kernel.outputs()[0].array;
  llvm::Type* type = ir.b.getIntNTy(static_cast<unsigned>(8 * tensor::ByteWidth(result.shape.type)));
  tensor::Dims blocks;
  for (const Run& run : transpose.outer) blocks.push_back(run.size);
  blocks.push_back(CeilDiv(transpose.rows.size, transpose.tile_rows));
  blocks.push_back(CeilDiv(transpose.columns.size, transpose.tile_columns));
  kernel.DivideBlocks(tensor::Product(blocks), kThreads);
  // Rows of the tile in shared memory have an odd length, so that the elements of a column are in different banks.
  const int64_t pitch = transpose.tile_rows | 1, elements = transpose.tile_rows * transpose.tile_columns;
  llvm::Value* tile = shared->Place(ir, type, transpose.tile_columns * pitch);
  const Values at = DimsOf(ir, Index::OfLinear(kernel.tile()), blocks);
  llvm::Value *from = ir.I64(0), *to = ir.I64(0);
  for (size_t r = 0; r < transpose.outer.size(); ++r) {
    from = ir.Add(from, ir.Mul(at[r], transpose.outer[r].from));
    to = ir.Add(to, ir.Mul(at[r], transpose.outer[r].to));
  }
  llvm::Value* row0 = ir.Mul(at[at.size() - 2], transpose.tile_rows);
  llvm::Value* column0 = ir.Mul(at.back(), transpose.tile_columns);
  ir.Loop(CeilDiv(elements, kThreads), [&](llvm::Value* turn) {
    llvm::Value* number = ir.Add(kernel.thread(), ir.Mul(turn, kThreads));
    // In both parts, the threads of a warp access adjacent elements of the operand or of the result.
    const int64_t adjacent = is_store ? transpose.tile_columns : transpose.tile_rows;
    llvm::Value *x = ir.Rem(number, adjacent), *y = ir.Div(number, adjacent);
    llvm::Value* r = is_store ? y : x;
    llvm::Value* c = is_store ? x : y;
    llvm::Value* row = ir.Add(row0, r);
    llvm::Value* column = ir.Add(column0, c);
    llvm::Value* inside = ir.b.CreateAnd(ir.b.CreateICmpULT(row, ir.I64(transpose.rows.size)),
                                         ir.b.CreateICmpULT(column, ir.I64(transpose.columns.size)));
    if (elements % kThreads != 0) inside = ir.b.CreateAnd(inside, ir.b.CreateICmpULT(number, ir.I64(elements)));
    ir.If(inside, [&] {
      llvm::Value* staged = ir.Address(type, tile, ir.Add(ir.Mul(c, pitch), r));
      llvm::Value* source = ir.Address(
          type, operand.base, ir.Add(ir.Add(from, row), ir.Mul(column, transpose.columns.from)));
      llvm::Value* target =
          ir.Address(type, result.base, ir.Add(ir.Add(to, column), ir.Mul(row, transpose.rows.to)));
      const llvm::Align align(tensor::ByteWidth(result.shape.type));
      llvm::Value* value = ir.b.CreateAlignedLoad(type, is_store ? staged : source, align);
      ir.b.CreateAlignedStore(value, is_store ? target : staged, align);
    });
  });
}

}  // namespace xlad::compiler
