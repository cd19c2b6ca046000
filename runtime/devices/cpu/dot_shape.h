// A general dot as a batch of matrix products: dimensions, strides, and which operands need packing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::runtime {

// A loop over an extent, and the strides of the three arrays along the loop, in elements. A stride is 0 if the array
// does not depend on the loop.
struct DotLoop {
  int64_t size = 1, lhs = 0, rhs = 0, result = 0;
};

// result[batch, m, n] = sum over k of lhs[batch, m, k] * rhs[batch, k, n]. The result is row-major.
struct DotShape {
  std::vector<DotLoop> batch, m, n, k;

  int64_t Elements(const std::vector<DotLoop>& loops) const;
  // Merges adjacent loops whose strides are contiguous, and removes loops of extent 1.
  void Merge();
  // Whether oneDNN can compute this shape as matrix products: there is at most one loop each for m, n and k.
  bool IsMatrix() const { return m.size() <= 1 && n.size() <= 1 && k.size() <= 1; }
};

// Returns the loop of m, n or k if the shape is a matrix. If there is none, returns a loop of extent 1.
inline DotLoop OnlyLoop(const std::vector<DotLoop>& loops) { return loops.empty() ? DotLoop{} : loops[0]; }

// InvalidArgument if dimension numbers and shapes do not match.
absl::StatusOr<DotShape> ReadDotShape(const DotOp& op);

// An operand that is copied to row-major [batch, rows, columns] order before the product.
struct Packing {
  std::vector<int64_t> sizes;    // The sizes of the copy, outermost first.
  std::vector<int64_t> strides;  // The strides of the operand, in elements.
};

// Changes `shape` to read a packed lhs ([batch, m, k]) or rhs ([batch, k, n]) and returns how to pack it.
Packing PackLhs(DotShape* shape);
Packing PackRhs(DotShape* shape);

// How PackRows copies: elements of 2 or 4 bytes unchanged, or floats of 2 bytes widened to f32.
enum class PackKind { kSame2, kSame4, kBf16ToF32, kF16ToF32 };
struct RowRange {
  int64_t begin, end;
};
// Writes rows begin .. end-1 of the copy. The number of its rows is the product of all its sizes except the last.
void PackRows(const Packing& packing, PackKind kind, const void* from, void* to, RowRange range);
int64_t CountRows(const Packing& packing);

// How a product is divided into tiles: the largest extents of a tile in the outermost batch loop, m and n. The division
// depends on the shape alone, so that the bits of the result do not depend on the number of threads.
struct DotGrid {
  int64_t batch = 1, m = 1, n = 1;
};
// Divides a merged shape. A product that takes less than about 10 microseconds is one tile.
DotGrid ChooseGrid(const DotShape& shape);

}  // namespace xlad::runtime
