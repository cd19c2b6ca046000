// Transposes that move the last dimension: square tiles of elements (not those of tiling.h) are transposed in vector
// registers.
//
// A loop in the order of the result would read columns. Every element of a column is in a different cache line, and a
// line would be evicted before its next element is read. A 16 by 16 tile reads and writes complete lines.
#include "compiler/codegen/llvm/transposes.h"

#include <algorithm>

#include "base/rounding.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/tile_mover.h"

namespace xlad::compiler {

using tensor::Dims;

std::vector<Run> RunsOf(const Dims& operand, const std::vector<int64_t>& permutation) {
  const Dims strides = tensor::Strides(operand);
  std::vector<Run> runs;
  for (const int64_t p : permutation) {
    const Run next = {operand[p], strides[p], 1};
    if (next.size == 1) continue;
    if (!runs.empty() && runs.back().from == next.from * next.size) {
      runs.back() = {runs.back().size * next.size, next.from, 1};
    } else {
      runs.push_back(next);
    }
  }
  for (size_t r = runs.size(); r-- > 1;) runs[r - 1].to = runs[r].to * runs[r].size;
  return runs;
}

namespace {

// The side of a tile: a power of two that is at most the number of elements of a vector register, 16, and the numbers
// of rows and columns. Transposing tiles with a side below 4 is not faster than a plain loop.
int64_t TileSide(int64_t rows, int64_t columns, int64_t element_bytes) {
  int64_t side = std::min<int64_t>(16, 64 / element_bytes);
  while (side > std::min(rows, columns)) side /= 2;
  return side;
}

// Divides 0 .. count-1 into pieces of `size`. If `size` does not divide `count`, the last piece overlaps the previous
// one and writes the same values again.
llvm::Value* StartOfPiece(Ir& ir, llvm::Value* piece, int64_t count, int64_t size) {
  llvm::Value* start = ir.Mul(piece, size);
  return count % size == 0 ? start : ir.Clamp(start, 0, count - size);
}

}  // namespace

void EmitTranspose(KernelContext& kernel, const hlo::Instruction& root) {
  const ArrayView* operand = kernel.elements().ArrayOf(root.operand(0));
  const Output& output = kernel.outputs()[0];
  const int64_t width = tensor::ByteWidth(root.shape().type());
  std::vector<Run> runs = RunsOf(root.operand(0)->shape().dims(), root.dimensions());
  const auto row = std::find_if(runs.begin(), runs.end(), [](const Run& run) { return run.from == 1; });
  const bool empty = root.shape().elements() == 0;
  const bool by_element = kernel.has_threads() || operand == nullptr || output.in_place || empty || width > 8;
  if (by_element || runs.size() < 2 || row == runs.end() - 1 ||
      TileSide(row->size, runs.back().size, width) < 4) {
    EmitLoops(kernel);
    return;
  }
  const Run rows = *row, columns = runs.back();
  runs.pop_back();
  runs.erase(row);
  Ir& ir = kernel.ir();
  const int64_t side = TileSide(rows.size, columns.size, width);
  TileMover tile(&ir, width, side);
  // There is one position for each index of the other dimensions and each piece of the rows.
  Dims outer;
  for (const Run& run : runs) outer.push_back(run.size);
  outer.push_back(CeilDiv(rows.size, side));
  kernel.Divide(TileRows(outer, kernel.wanted_tiles()));
  ForPositions(ir, kernel.range(), outer, [&](const Index& position) {
    const Values index = DimsOf(ir, position, outer);
    llvm::Value *from = ir.I64(0), *to = ir.I64(0);
    for (size_t r = 0; r < runs.size(); ++r) {
      from = ir.Add(from, ir.Mul(index[r], runs[r].from));
      to = ir.Add(to, ir.Mul(index[r], runs[r].to));
    }
    llvm::Value* r = StartOfPiece(ir, index.back(), rows.size, side);
    ir.Loop(CeilDiv(columns.size, side), [&](llvm::Value* piece) {
      llvm::Value* c = StartOfPiece(ir, piece, columns.size, side);
      tile.Move(tile.At(operand->base, ir.Add(ir.Add(from, r), ir.Mul(c, columns.from))), columns.from,
                tile.At(output.array.base, ir.Add(ir.Add(to, c), ir.Mul(r, rows.to))), rows.to);
    });
  });
}

}  // namespace xlad::compiler
