#include "base/quoted.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace xlad {

std::string Quoted(absl::string_view text) {
  constexpr size_t kShownBytes = 40;
  if (text.size() <= kShownBytes) return absl::StrCat("\"", absl::CHexEscape(text), "\"");
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kShownBytes)), "...\" (", text.size(), " bytes)");
}

}  // namespace xlad
