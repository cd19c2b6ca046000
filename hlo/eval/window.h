// Windows over an array: which element of the array a window position falls on.
#pragma once

#include "hlo/attributes.h"
#include "hlo/eval/value.h"

namespace xlad::hlo::eval {

// The operand's index for window element `element` at window position `position`, or -1 where that is padding or a
// hole made by base dilation.
inline int64_t OperandIndex(const WindowDimension& window, int64_t size, int64_t position, int64_t element) {
  const int64_t in_window = window.window_reversal ? window.size - 1 - element : element;
  const int64_t dilated = position * window.stride - window.padding_low + in_window * window.window_dilation;
  if (dilated < 0 || dilated % window.base_dilation != 0) return -1;
  const int64_t index = dilated / window.base_dilation;
  return index < size ? index : -1;
}

// The linear index for a position and an element of a whole window, or -1.
inline int64_t OperandOffset(const Window& window, const Dims& dims, const Dims& position, const Dims& element) {
  int64_t offset = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t index = OperandIndex(window[d], dims[d], position[d], element[d]);
    if (index < 0) return -1;
    offset = offset * dims[d] + index;
  }
  return offset;
}

inline Dims WindowSizes(const Window& window) {
  Dims sizes;
  for (const WindowDimension& dimension : window) sizes.push_back(dimension.size);
  return sizes;
}

}  // namespace xlad::hlo::eval
