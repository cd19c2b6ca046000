// Quotes text of unknown origin for error messages.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace xlad {

// Returns the text in double quotes. Bytes that are not printable ASCII are escaped. A text of more than 40 bytes is
// truncated and its size is added: "schedule ra..." (1200 bytes).
std::string Quoted(absl::string_view text);

}  // namespace xlad
