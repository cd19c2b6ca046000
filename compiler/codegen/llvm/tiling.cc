#include "compiler/codegen/llvm/tiling.h"

#include <algorithm>
#include <utility>

#include "base/rounding.h"

namespace xlad::compiler {
namespace {

using tensor::Dims;

// The last dimension d such that the product of the sizes of d and all following dimensions is `product`, or -1 if
// there is none. If `product` is 1, the result is dims.size().
int64_t SuffixOf(const Dims& dims, int64_t product) {
  int64_t suffix = 1;
  for (int64_t d = std::ssize(dims); d >= 0; --d) {
    if (d < std::ssize(dims)) suffix *= dims[d];
    if (suffix == product) return d;
  }
  return -1;
}

// Emits `body` for the position of this thread, if there is such a position.
void ForThread(Ir& ir, const TileRange& range, int64_t positions, const std::function<void(const Index&)>& body) {
  if (positions == 0) return;
  llvm::Value* inside = ir.b.CreateICmpULT(range.thread, ir.I64(positions));
  if (positions < range.threads) return ir.If(inside, [&] { body(Index::OfLinear(range.thread)); });
  ir.b.CreateAssumption(inside);  // If LLVM knows the range, it divides in fewer bits.
  body(Index::OfLinear(range.thread));
}

Index Unflatten(Ir& ir, llvm::Value* position, const Dims& dims) {
  return Index::Of(DimsOf(ir, Index::OfLinear(position), dims));
}

}  // namespace

Tiling TileLinear(int64_t positions, int64_t tiles) {
  // Tiles consist of whole cache lines, so that two threads do not write the same line.
  const int64_t width = std::min(positions, RoundUp(CeilDiv(positions, tiles), 64));
  return {positions, positions, std::max<int64_t>(1, width), 1};
}

Tiling TileRows(const Dims& dims, int64_t tiles) {
  const int64_t positions = tensor::Product(dims);
  if (positions == 0) return {};
  int64_t rows = 1, row = positions;
  for (size_t d = 0; d < dims.size() && rows < tiles; ++d) {
    rows *= dims[d];
    row /= dims[d];
  }
  return {positions, positions, CeilDiv(rows, tiles) * row, row};
}

Tiling TileWholeRows(Dims dims, int64_t tiles) {
  const int64_t columns = std::exchange(dims.back(), 1);
  Tiling tiling = TileRows(dims, tiles);
  for (int64_t* positions : {&tiling.positions, &tiling.span, &tiling.width, &tiling.row}) *positions *= columns;
  return tiling;
}

Tiling TileColumns(const Dims& dims, int64_t tiles, int64_t max_width) {
  constexpr int64_t kMinWidth = 32;
  const int64_t positions = tensor::Product(dims);
  int64_t columns = 1;
  for (size_t d = dims.size(); d-- > 0 && columns == 1;) columns = dims[d];
  const int64_t outer = positions / columns;
  if (outer >= tiles || columns < 2 * kMinWidth) {
    return {positions, positions, CeilDiv(outer, std::min(tiles, outer)) * columns, columns};
  }
  const int64_t width = RoundUp(CeilDiv(columns, CeilDiv(tiles, outer)), kMinWidth);
  return {positions, columns, std::min({width, columns, max_width}), 1};
}

TileRange RangeOfTile(Ir& ir, const Tiling& tiling, llvm::Value* tile) {
  const int64_t per_span = CeilDiv(tiling.span, tiling.width);
  llvm::Value* span = ir.Mul(ir.Div(tile, per_span), tiling.span);
  llvm::Value* first = ir.Mul(ir.Rem(tile, per_span), tiling.width);
  llvm::Value* last = ir.Add(first, ir.I64(tiling.width));
  if (tiling.span % tiling.width != 0) last = ir.Clamp(last, 0, tiling.span);
  return {tiling, ir.Add(span, first), ir.Add(span, last)};
}

void ForPositions(Ir& ir, const TileRange& range, const Dims& dims, const std::function<void(const Index&)>& body) {
  if (range.thread != nullptr) return ForThread(ir, range, tensor::Product(dims), body);
  if (range.is_whole()) {
    ir.LoopNest(dims, [&](const Values& index) { body(Index::Of(index)); });
    return;
  }
  const Tiling& tiling = range.tiling;
  if (tiling.span < tiling.positions) {
    const int64_t column = SuffixOf(dims, tiling.span);
    if (column >= 0 && tensor::Product(dims) / tiling.span > 0 && dims[column] == tiling.span) {
      llvm::Value* outer = ir.Div(range.begin, tiling.span);
      llvm::Value* base = ir.Mul(outer, tiling.span);
      const Dims leading(dims.begin(), dims.begin() + column);
      const Values at = DimsOf(ir, Index::OfLinear(outer), leading);
      ir.RangeLoop(ir.b.CreateSub(range.begin, base), ir.b.CreateSub(range.end, base), [&](llvm::Value* i) {
        Values index = at;
        index.push_back(i);
        index.resize(dims.size(), ir.I64(0));
        body(Index::Of(index));
      });
      return;
    }
    return ForLinear(ir, range, tiling.positions, body);
  }
  const int64_t inner = SuffixOf(dims, tiling.row);
  if (inner < 0) return ForLinear(ir, range, tiling.positions, body);
  const Dims leading(dims.begin(), dims.begin() + inner), rest(dims.begin() + inner, dims.end());
  ir.RangeLoop(ir.Div(range.begin, tiling.row), ir.Div(range.end, tiling.row), [&](llvm::Value* row) {
    const Values at = Unflatten(ir, row, leading).dims;
    ir.LoopNest(rest, [&](const Values& in_row) {
      Values index = at;
      index.insert(index.end(), in_row.begin(), in_row.end());
      body(Index::Of(index));
    });
  });
}

void ForLinear(Ir& ir, const TileRange& range, int64_t positions, const std::function<void(const Index&)>& body) {
  const auto at = [&](llvm::Value* i) { body(Index::OfLinear(i)); };
  if (range.thread != nullptr) return ForThread(ir, range, positions, body);
  if (range.is_whole()) return ir.Loop(positions, at);
  ir.RangeLoop(range.begin, range.end, at);
}

void ForOthers(Ir& ir, Dims sizes, const std::vector<size_t>& fixed, const Values& values,
               const std::function<void(const Values&)>& body) {
  for (const size_t d : fixed) sizes[d] = 1;
  ir.LoopNest(sizes, [&](const Values& index) {
    Values at = index;
    for (size_t i = 0; i < fixed.size(); ++i) at[fixed[i]] = values[i];
    body(at);
  });
}

}  // namespace xlad::compiler
