// The security of a coordinator that other machines reach: its authority, its certificate and its tokens, in the folder
// "security" of its data folder, which is private to its user. Everything is made when it is missing.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "security/join_file.h"
#include "security/roles.h"

namespace xlad::service {

struct ServerSecurity {
  std::string authority;         // The certificate of the authority, as PEM.
  std::string certificate, key;  // The server shows these, as PEM. New at each start.
};

// The names in the certificate are `advertise`, if it is not empty, the host of `listen`, and the names and addresses
// of this machine. Errors: those of writing the files, and InvalidArgument for hosts that are not names or addresses.
absl::StatusOr<ServerSecurity> PrepareSecurity(const std::string& data_folder, const std::string& listen,
                                               const std::string& advertise, const Clock& clock);

// Remembers the address for join files that are made later.
absl::Status StoreAddress(const std::string& data_folder, const std::string& address);

// The folder of the tokens.
std::string TokenFolder(const std::string& data_folder);

// Issues a token and returns its join file. FailedPrecondition if no coordinator with this data folder has listened off
// loopback.
absl::StatusOr<security::JoinFile> MakeJoinFile(const std::string& data_folder, const security::Caller& caller,
                                                int64_t valid_s);

}  // namespace xlad::service
