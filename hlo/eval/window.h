// Windows over an array: the element of the array at a position of the window.
#pragma once

#include "hlo/attributes.h"
#include "hlo/eval/value.h"

namespace xlad::hlo::eval {

// For one dimension, of size `size`: the index in the operand of element `element` of the window at `position`. Returns
// -1 if the element is in the padding, or in a gap that base dilation inserts between elements of the operand.
inline int64_t OperandIndex(const WindowDimension& window, int64_t size, int64_t position, int64_t element) {
  const int64_t in_window = window.window_reversal ? window.size - 1 - element : element;
  const int64_t dilated = position * window.stride - window.padding_low + in_window * window.window_dilation;
  if (dilated < 0 || dilated % window.base_dilation != 0) return -1;
  const int64_t index = dilated / window.base_dilation;
  return index < size ? index : -1;
}

// OperandIndex for all dimensions: returns the linear index in the operand, or -1.
inline int64_t OperandOffset(const Window& window, const Dims& dims, const Dims& position, const Dims& element) {
  int64_t offset = 0;
  for (const int64_t d : tensor::Indices(dims)) {
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
