// A join file: everything that a client or a worker needs to reach a coordinator, in one file of mode 0600.
//
// It is text: the token in the first line, the address in the second, then the certificate of the authority. So it can
// also be given to programs that ask for a token file (the first line) and for a file of certificates (PEM).
#pragma once

#include <string>

#include "base/status.h"

namespace xlad::security {

struct JoinFile {
  std::string address;    // HOST:PORT of the coordinator.
  std::string authority;  // The certificate that signs the coordinator's, as PEM.
  std::string token;
};

std::string FormatJoinFile(const JoinFile& join);
// InvalidArgument, with what is missing, for other texts.
absl::StatusOr<JoinFile> ParseJoinFile(const std::string& text);

// $XDG_CONFIG_HOME/xlad/join, or ~/.config/xlad/join: the file of this user's commands if they are told no coordinator.
// "" if neither variable is set.
std::string DefaultJoinPath();

}  // namespace xlad::security
