// Finds which user of this machine is at the other end of a TCP connection over loopback.
//
// The kernel records the owner of every socket, and a client cannot change it. A server on loopback can therefore
// refuse the other users of its machine without a password.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace xlad {

// Returns the id of the user whose process made the socket at `client`, which is connected to `server`. Both addresses
// have the form "127.0.0.1:4711" or "[::1]:4711". NotFound if there is no such connection on this machine,
// InvalidArgument for malformed addresses.
absl::StatusOr<uid_t> UserOfClient(const std::string& client, const std::string& server);

// Returns the user of the client of a connection over loopback, which is this process's user or root. If it is another
// user, returns PermissionDenied with both users, or with the reason why the client's user cannot be found.
absl::StatusOr<uid_t> FindSameUser(const std::string& client, const std::string& server);
absl::Status CheckSameUser(const std::string& client, const std::string& server);

}  // namespace xlad
