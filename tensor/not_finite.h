// Finds numbers that are not finite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "tensor/element_type.h"

namespace xlad::tensor {

// The indices of the first NaN and of the first infinity, or -1 if there is no such element. Both parts of a complex
// number are checked.
struct NotFinite {
  int64_t first_nan = -1;
  int64_t first_infinity = -1;

  bool all_finite() const { return first_nan < 0 && first_infinity < 0; }
};

// `bytes` are the elements of an array. Integers and floats of fewer than 8 bits have neither infinities nor NaNs, so
// all of their values count as finite.
NotFinite FindNotFinite(ElementType type, absl::Span<const std::byte> bytes);

}  // namespace xlad::tensor
