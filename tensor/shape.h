// The shape of a dense array: its element type and dimension sizes. Elements are in row-major order.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "tensor/element_type.h"
#include "tensor/indices.h"

namespace xlad::tensor {

struct Shape {
  ElementType type = ElementType::kInvalid;
  Dims dims;

  int64_t ndim() const { return std::ssize(dims); }
  int64_t elements() const { return Product(dims); }
  int64_t bytes() const { return elements() * ByteWidth(type); }
  // "f32[128,256]"
  std::string ToString() const;
  friend bool operator==(const Shape&, const Shape&) = default;
};

// The product of `dims`, or InvalidArgument if a size is negative or if the array would have more than 2^62 bytes. For
// this limit, sizes of 0 count as 1, so that strides do not overflow either.
absl::StatusOr<int64_t> CheckedElements(ElementType type, absl::Span<const int64_t> dims);

// Parses what ToString prints. InvalidArgument if `text` is malformed, has a layout, or fails CheckedElements.
absl::StatusOr<Shape> ParseShape(absl::string_view text);

}  // namespace xlad::tensor
