// The valid indices of a list, for the end of a message such as "found collective 7, expected 0 to 3".
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace xlad::runtime {

// Returns "0 to 3" for a list of 4 elements, "0" for a list of 1 element, and "none" for an empty list.
inline std::string IndexText(int64_t count) {
  if (count <= 0) return "none";
  return count == 1 ? "0" : absl::StrCat("0 to ", count - 1);
}

}  // namespace xlad::runtime
