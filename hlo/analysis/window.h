// Questions about the windows of reduce-window, select-and-scatter and convolution.
#pragma once

#include "hlo/attributes.h"

namespace xlad::hlo {

// Whether the index along a dimension of a window operation is the same in the operand and in the result: each window
// has one element along it.
inline bool HasNoWindow(const WindowDimension& d) {
  return d.size == 1 && d.stride == 1 && d.padding_low == 0 && d.padding_high == 0 && d.base_dilation == 1;
}

}  // namespace xlad::hlo
