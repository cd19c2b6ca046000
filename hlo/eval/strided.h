// Copies between strided views of arrays. They implement broadcast, slice, transpose, pad and similar ops.
#pragma once

#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {

// A view of an array: element (i0, i1, ...) of the view is element offset + i0 * strides[0] + i1 * strides[1] + ... of
// the array. A stride of 0 repeats elements, and a negative stride reverses them. Example: the transpose of f32[2,3]
// has offset 0 and strides {1, 3}.
struct StridedView {
  int64_t offset = 0;
  Dims strides;
};

// An array's bytes with a view of them. Both are borrowed for the duration of a call.
struct StridedSource {
  absl::Span<const std::byte> bytes;
  const StridedView& view;
};
struct StridedTarget {
  absl::Span<std::byte> bytes;
  const StridedView& view;
};

// Copies the elements of `from` to `to` for all indices below `dims`. Elements have `width` bytes.
void CopyStrided(const StridedSource& from, const StridedTarget& to, absl::Span<const int64_t> dims, int64_t width);

// A new array of shape `shape` with the elements of the view `from` of `value`.
Array ReadStrided(const Value& value, const StridedView& from, const tensor::Shape& shape);

// The view of all elements of a row-major array of dimensions `dims`.
inline StridedView RowMajor(absl::Span<const int64_t> dims) { return {0, tensor::Strides(dims)}; }

// Transposes `value`: dimension d of the result is dimension permutation[d] of `value`.
Value TransposeValue(const Value& value, absl::Span<const int64_t> permutation);

// The concatenation of the parts, of which there is at least one, along `dimension`.
Value Concatenate(absl::Span<const Value> parts, int64_t dimension);

// Slice `i` of dimension `dimension`, without that dimension.
Value SliceAt(const Value& value, int64_t dimension, int64_t i);

// The sum of index[d] * strides[d].
int64_t Offset(absl::Span<const int64_t> index, absl::Span<const int64_t> strides);

// Element i of an integer or pred array. A u64 above the range of int64_t becomes the largest int64_t.
int64_t IntAt(const Value& value, int64_t i);

// An array of shape `shape` whose elements all have the bytes of `scalar`.
Array Filled(const tensor::Shape& shape, absl::Span<const std::byte> scalar);

}  // namespace xlad::hlo::eval
