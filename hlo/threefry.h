// How rng-bit-generator with the algorithm Threefry assigns counters to elements. The evaluator, the code generator and
// the partitioner must agree, because a program has the same random bits on every device and mesh.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"

namespace xlad::hlo {

// Threefry generates two numbers of at most 32 bits from each counter. They are those of two neighboring elements along
// the dimension that this function returns: the first one of even size, or the longest one if no size is even. The
// longest one is then padded by one element. 0 for a scalar.
inline int64_t ThreefryPairDimension(absl::Span<const int64_t> dims) {
  const auto even = std::find_if(dims.begin(), dims.end(), [](int64_t size) { return size % 2 == 0; });
  return (even != dims.end() ? even : std::max_element(dims.begin(), dims.end())) - dims.begin();
}

}  // namespace xlad::hlo
