// Text of unknown origin as UTF-8. Programs, files and processes may contain any bytes, but the string fields of
// protocol buffers must be UTF-8: a message with other bytes can be written, but not read.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace xlad {

// Returns the text, in which each byte that is not a part of a character of UTF-8 is replaced with U+FFFD. Surrogates,
// overlong forms and numbers above U+10FFFF are not characters. Example: "a\xffz" becomes "a\xef\xbf\xbdz".
std::string ToUtf8(absl::string_view text);

}  // namespace xlad
