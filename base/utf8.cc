#include "base/utf8.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace xlad {
namespace {

// Returns the number of bytes of the character with which the text begins, or 0 if it begins with none (RFC 3629).
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  // The second byte has a smaller range after some first bytes, which excludes overlong forms, surrogates and numbers
  // above U+10FFFF.
  uint8_t low = 0x80, high = 0xbf;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  const size_t size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (size == 0 || size > text.size() || byte(1) < low || byte(1) > high) return 0;
  for (size_t at = 2; at < size; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
  }
  return size;
}

}  // namespace

std::string ToUtf8(absl::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    absl::StrAppend(&valid, size == 0 ? absl::string_view("\xef\xbf\xbd") : text.substr(0, size));
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return valid;
}

}  // namespace xlad
