#include "storage/uri.h"

#include <algorithm>

#include "absl/strings/strip.h"
#include "base/file_system.h"
#include "base/hash.h"

namespace xlad::storage {

std::string FileUri(absl::string_view path) { return absl::StrCat("file:", path); }
std::string BlobUri(absl::string_view digest) { return absl::StrCat("xlad:", digest); }

std::string Uri::ToString() const { return scheme == Scheme::kFile ? FileUri(rest) : BlobUri(rest); }

absl::StatusOr<Uri> ParseUri(absl::string_view text) {
  absl::string_view rest = text;
  const bool printable = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= ' ' && c != 127; });
  if (printable && absl::ConsumePrefix(&rest, "file:") && !rest.empty() && rest[0] == '/') {
    return Uri{Uri::Scheme::kFile, std::string(rest)};
  }
  if (absl::ConsumePrefix(&rest, "xlad:") && (rest.empty() || IsSha256Hex(rest))) {
    return Uri{Uri::Scheme::kBlob, std::string(rest)};
  }
  return absl::InvalidArgumentError(absl::StrCat("found the URI \"",
                                                 printable ? text.substr(0, 200) : "(not printable)",
                                                 "\", expected file:/ABSOLUTE/PATH, or xlad: followed by nothing or by "
                                                 "64 lower-case hex digits"));
}

bool IsCheckpointUri(absl::string_view text) {
  const absl::StatusOr<Uri> uri = ParseUri(text);
  return uri.ok() && (uri->scheme == Uri::Scheme::kFile || uri->rest.empty());
}

absl::StatusOr<std::string> Beside(const Uri& index, const std::string& name) {
  if (absl::string_view(name).substr(0, 5) == "xlad:") {
    XLAD_RETURN_IF_ERROR(ParseUri(name).status());
    return name;
  }
  if (index.scheme != Uri::Scheme::kFile || name.empty() || name[0] == '.' || name.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("found the shard \"", name.substr(0, 200), "\" in the index ",
                                                   index.ToString(), ", expected a name in its folder or xlad:DIGEST"));
  }
  return FileUri(JoinPath(FolderOfPath(index.rest), name));
}

}  // namespace xlad::storage
