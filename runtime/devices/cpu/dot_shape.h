// A general dot as a batch of matrix products: dimensions, strides, and which operands need packing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::runtime {

// A loop over an extent and how far the three arrays move with it, in elements (0: not at all).
struct DotLoop {
  int64_t size = 1, lhs = 0, rhs = 0, result = 0;
};

// result[batch, m, n] = sum over k of lhs[batch, m, k] * rhs[batch, k, n]. The result is row-major.
struct DotShape {
  std::vector<DotLoop> batch, m, n, k;

  int64_t Elements(const std::vector<DotLoop>& loops) const;
  // Neighbouring loops that step evenly become one; extents of 1 go.
  void Merge();
  // At most one loop each of m, n and k: a matrix product for the library.
  bool IsMatrix() const { return m.size() <= 1 && n.size() <= 1 && k.size() <= 1; }
};

// InvalidArgument where dimension numbers and shapes do not fit.
absl::StatusOr<DotShape> ReadDotShape(const DotOp& op);

// An operand copied to row-major [batch, rows, columns] order, before the product.
struct Packing {
  std::vector<int64_t> sizes;    // Of the copy, outermost first.
  std::vector<int64_t> strides;  // Of the operand, in elements.
};

// Changes `shape` to read a packed lhs ([batch, m, k]) or rhs ([batch, k, n]) and says how to pack it.
Packing PackLhs(DotShape* shape);
Packing PackRhs(DotShape* shape);

// The copy itself: elements of `width` bytes (2 or 4), or 2-byte floats widened to f32.
enum class PackKind { kSame2, kSame4, kBf16ToF32, kF16ToF32 };
void Pack(const Packing& packing, PackKind kind, const void* from, void* to);

}  // namespace xlad::runtime
