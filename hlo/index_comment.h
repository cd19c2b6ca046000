// The numbers of elements in the long lists of HLO text.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace xlad::hlo {

// Appends the comment before element `i` of a list: every fifth element has its number, as in XLA's dumps.
inline void AppendIndexComment(size_t i, std::string* out) {
  if (i > 0 && i % 5 == 0) absl::StrAppend(out, "/*index=", i, "*/");
}

}  // namespace xlad::hlo
