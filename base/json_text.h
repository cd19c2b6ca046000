// JSON as text.
#pragma once

#include <string>

namespace xlad {

// Returns the text of a JSON value of nlohmann's library, with `indent` spaces for each level, or on one line if
// `indent` is negative. Strings may have any bytes, as names in HLO and paths do: bytes that are not UTF-8 are replaced
// with U+FFFD. The library's dump() would throw an exception.
template <typename Json>
std::string JsonText(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace xlad
