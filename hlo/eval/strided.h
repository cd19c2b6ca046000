// Moving elements between arrays by strides: what broadcast, slice, transpose, pad and their like have in common.
#pragma once

#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {

// A walk over elements: element (i0, i1, ...) is at offset + i0 * strides[0] + i1 * strides[1] + ..., in elements.
// A stride of 0 repeats, a negative one goes backwards.
struct Walk {
  int64_t offset = 0;
  Dims strides;
};

// Bytes and the walk through them; for one call, so both are only referred to.
struct ReadWalk {
  absl::Span<const std::byte> bytes;
  const Walk& walk;
};
struct WriteWalk {
  absl::Span<std::byte> bytes;
  const Walk& walk;
};

// `to` becomes `from`, for every index in `dims`. Elements are `width` bytes.
void CopyStrided(const ReadWalk& from, const WriteWalk& to, absl::Span<const int64_t> dims, int64_t width);

// A new array of `shape` with the elements of `value` at `from`.
Array ReadStrided(const Value& value, const Walk& from, const tensor::Shape& shape);

// The row-major walk over an array of `dims`.
inline Walk Dense(absl::Span<const int64_t> dims) { return {0, tensor::Strides(dims)}; }

// Dimensions permuted: result dimension d is dimension permutation[d] of `value`.
Value TransposeValue(const Value& value, absl::Span<const int64_t> permutation);

// Element i of an integer array; above the range of int64_t: its maximum.
int64_t IntAt(const Value& value, int64_t i);

// An array of `shape` filled with the scalar's bytes.
Array Filled(const tensor::Shape& shape, absl::Span<const std::byte> scalar);

}  // namespace xlad::hlo::eval
