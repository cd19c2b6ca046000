// Boxes. A box is a part of a tensor, in global indices, such as the part that a device holds. The functions here also
// copy boxes out of and into arrays.
#pragma once

#include <string>

#include "tensor/array.h"

namespace xlad::tensor {

// The indices [lo[d], hi[d]) in each dimension d, with lo[d] <= hi[d]. The box is empty if lo[d] == hi[d] for some d.
struct Box {
  Dims lo;
  Dims hi;

  Dims sizes() const;            // hi - lo
  int64_t elements() const;      // The product of the sizes.
  std::string ToString() const;  // "[0:4, 8:16]"
  friend bool operator==(const Box&, const Box&) = default;
};

// The box of all indices of a shape.
Box FullBox(const Shape& shape);

// Copies the elements of `box` in `array` to the start of a new array of dimensions `padded` (padded[d] is at least
// box.sizes()[d]). The other elements of the new array are zeros. The box must be inside the array.
//   ExtractBox(array 0 1 2 3 4, box [3:5], padded {4}) = 3 4 0 0
Array ExtractBox(const Array& array, const Box& box, absl::Span<const int64_t> padded);

// The inverse: copies the elements at the start of `shard`, box.sizes()[d] in each dimension d, to `box` of `array`.
// Ignores the other elements of the shard (its padding). Both arrays have the same element type.
void InsertBox(const Array& shard, const Box& box, Array* array);

// Whether the box has as many dimensions as the shape and is inside it.
bool IsInside(const Box& box, const Shape& shape);

// The box of the same sizes that starts at index 0 in each dimension.
Box AtOrigin(const Box& box);

}  // namespace xlad::tensor
