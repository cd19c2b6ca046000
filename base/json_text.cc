#include "base/json_text.h"

#include "absl/strings/str_format.h"
#include "base/utf8.h"

namespace xlad {

std::string JsonString(absl::string_view text) {
  constexpr absl::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  std::string json = "\"";
  for (const char c : ToUtf8(text)) {
    if (const size_t at = kEscaped.find(c); at != absl::string_view::npos) {
      json += {'\\', kLetters[at]};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&json, "\\u%04x", c);
    } else {
      json += c;
    }
  }
  return json + '"';
}

}  // namespace xlad
