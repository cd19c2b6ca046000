// JSON as text.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace xlad {

// Returns the text as a JSON string, in quotes. Bytes that are not UTF-8 are replaced as by ToUtf8 (base/utf8.h). A
// source that writes only strings can use this function instead of the JSON library, which takes seconds to compile.
std::string JsonString(absl::string_view text);

// Returns the text of a JSON value of nlohmann's library, with `indent` spaces for each level, or on one line if
// `indent` is negative. Bytes that are not UTF-8, which names in HLO and file paths may contain, are replaced with
// U+FFFD. With its default error handler, the library's dump() would throw an exception instead.
template <typename Json>
std::string JsonText(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace xlad
