// A box: which global indices of a tensor a device holds, and moving boxes in and out of arrays.
#pragma once

#include <string>

#include "tensor/array.h"

namespace xlad::tensor {

// Indices [lo[d], hi[d]) in every dimension; empty where some lo == hi.
struct Box {
  Dims lo;
  Dims hi;

  Dims sizes() const;
  int64_t elements() const;
  std::string ToString() const;  // "[0:4, 8:16]"
  friend bool operator==(const Box&, const Box&) = default;
};

// All of a shape.
Box WholeBox(const Shape& shape);

// The part of `array` in `box` as an array of `padded` dims (>= box sizes), zeros behind the box's end.
Array ExtractBox(const Array& array, const Box& box, absl::Span<const int64_t> padded);

// Writes the leading box.sizes() of `shard` into `array` at the box.
void InsertBox(const Array& shard, const Box& box, Array* array);

}  // namespace xlad::tensor
