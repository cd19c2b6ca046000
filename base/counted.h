// Counts in messages, with the noun in the singular or plural.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace xlad {

// Returns "1 operand" or "2 operands" for the noun "operand".
inline std::string Counted(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace xlad
