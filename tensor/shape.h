// The shape of a dense array: element type and dimension sizes, row-major.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "tensor/element_type.h"

namespace xlad::tensor {

using Dims = std::vector<int64_t>;

struct Shape {
  ElementType type = ElementType::kInvalid;
  Dims dims;

  int64_t ndim() const { return std::ssize(dims); }
  int64_t elements() const;  // Product of dims; 1 for a scalar.
  int64_t bytes() const { return elements() * ByteWidth(type); }
  // "f32[128,256]"
  std::string ToString() const;
  friend bool operator==(const Shape&, const Shape&) = default;
};

// Elements of dims, or an error where a size is negative or the product does not fit in 2^62 bytes of `type`.
absl::StatusOr<int64_t> CheckedElements(ElementType type, absl::Span<const int64_t> dims);

// "f32[128,256]" read; no layout.
absl::StatusOr<Shape> ParseShape(absl::string_view text);

// Row-major strides in elements.
Dims Strides(absl::Span<const int64_t> dims);

// Moves `index` to the next position in row-major order; false after the last one.
bool NextIndex(absl::Span<const int64_t> dims, absl::Span<int64_t> index);

int64_t Product(absl::Span<const int64_t> dims);
int64_t LinearIndex(absl::Span<const int64_t> dims, absl::Span<const int64_t> index);

}  // namespace xlad::tensor
