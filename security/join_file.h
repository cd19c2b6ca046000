// A join file: everything that a client or a worker needs to reach a coordinator, in one file of mode 0600.
//
// It is a text file with the token in the first line, the address in the second line, and the authority's certificate
// in the following lines. It can therefore also be used as a token file (the first line) and as a file of certificates
// (PEM).
#pragma once

#include <string>

#include "base/status.h"

namespace xlad::security {

struct JoinFile {
  std::string address;    // HOST:PORT of the coordinator.
  std::string authority;  // The certificate of the authority that signed the coordinator's certificate, as PEM.
  std::string token;
};

std::string FormatJoinFile(const JoinFile& join);
// InvalidArgument, which names the missing or malformed part, if the text is not a join file.
absl::StatusOr<JoinFile> ParseJoinFile(const std::string& text);

// $XDG_CONFIG_HOME/xlad/join, or ~/.config/xlad/join. The user's commands read this file if no coordinator is given.
// Empty if neither XDG_CONFIG_HOME nor HOME is set.
std::string DefaultJoinPath();

}  // namespace xlad::security
