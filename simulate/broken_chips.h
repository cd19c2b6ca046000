// Slices with broken chips: a program runs on a part of the slice.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "simulate/slice.h"

namespace xlad::simulate {

inline constexpr int kMaxBrokenChips = 16;

// Reduces the slice to the largest box of chips without broken chips. `chips` has the numbers of the broken chips as
// texts such as "17", as in Slice::broken_links. The chips of the box get new numbers, and the name becomes "v5e-15x16
// of v5e-16x16". A box may contain the link that closes a ring, but a dimension with fewer chips than before does not
// wrap around. If there are several slices, all of them get the box that contains no chip that is broken in any of
// them. Broken links outside of the box are removed.
//
// InvalidArgument, and an unchanged slice, if a text is not the number of a chip, if more than kMaxBrokenChips chips
// are broken, or if no chip is left.
absl::Status CutAround(const std::vector<std::string>& chips, Slice* slice);

}  // namespace xlad::simulate
