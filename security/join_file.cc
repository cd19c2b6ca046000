#include "security/join_file.h"

#include <cstdlib>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/net/network.h"
#include "security/tokens.h"

namespace xlad::security {
namespace {

constexpr absl::string_view kAddress = "address: ";
constexpr char kBegin[] = "-----BEGIN CERTIFICATE-----";
constexpr char kEnd[] = "-----END CERTIFICATE-----";

}  // namespace

std::string FormatJoinFile(const JoinFile& join) {
  return absl::StrCat(join.token, "\n", kAddress, join.address, "\n", join.authority);
}

absl::StatusOr<JoinFile> ParseJoinFile(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  JoinFile join;
  join.token = lines[0];
  if (TokenId(join.token).empty()) {
    return absl::InvalidArgumentError(
        "found no token in the first line, expected a join file that `xlad token -o FILE` has written");
  }
  if (lines.size() < 2 || !absl::StartsWith(lines[1], kAddress)) {
    return absl::InvalidArgumentError("found no address in the second line, expected \"address: HOST:PORT\"");
  }
  join.address = lines[1].substr(kAddress.size());
  XLAD_RETURN_IF_ERROR(ParseHostPort(join.address).status());
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    return absl::InvalidArgumentError("found no certificate, expected that of the coordinator's authority");
  }
  join.authority = absl::StrCat(text.substr(begin, end + sizeof kEnd - 1 - begin), "\n");
  return join;
}

std::string DefaultJoinPath() {
  const char* const config = std::getenv("XDG_CONFIG_HOME");
  const char* const home = std::getenv("HOME");
  if (config != nullptr && *config != 0) return JoinPath(config, "xlad/join");
  if (home != nullptr && *home != 0) return JoinPath(home, ".config/xlad/join");
  return "";
}

}  // namespace xlad::security
