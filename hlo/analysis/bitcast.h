// The meaning of bitcasts, which depends on the memory of arrays.
#pragma once

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// The dimensions of an array from the slowest to the fastest varying one in memory. An array without a layout is
// row-major.
Dims MajorToMinor(const Shape& shape);

// Returns Unimplemented for a bitcast that is neither evaluated nor compiled. A bitcast reinterprets the memory of its
// operand as an array of another element type, shape and layout. The memory of an array is its elements in the order of
// its layout. Therefore these bitcasts are refused:
//
//   - between tiled arrays, unless the tiles and the sizes of the tiled dimensions are the same:
//       f32[2,4,8,128]{3,2,1,0:T(8,128)} to f32[8,8,128]{2,1,0:T(8,128)} is accepted, to f32[64,128]{1,0:T(8,128)} is
//       not
//   - between types of different widths, one of which has less than a byte: the text does not say whether these
//     elements are packed
//   - between tuples of different layouts
absl::Status CheckBitcast(const Instruction& bitcast);

}  // namespace xlad::hlo
