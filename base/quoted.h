// Text of unknown origin in error messages.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace xlad {

// The text in double quotes; bytes that are not printable ASCII are escaped. A text of more than 40 bytes is cut
// and its size added: "schedule ra..." (1200 bytes).
std::string Quoted(absl::string_view text);

}  // namespace xlad
