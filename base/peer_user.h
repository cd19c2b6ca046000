// Which user of this machine is at the other end of a TCP connection over loopback.
//
// The kernel knows the owner of every socket, and a client cannot change it. So a server on loopback can refuse the
// other users of its machine without a password.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace xlad {

// The user id of the process that made the socket at `client`, which is connected to `server`; both are as
// "127.0.0.1:4711" or "[::1]:4711". NotFound if there is no such connection on this machine, InvalidArgument for
// malformed addresses.
absl::StatusOr<uid_t> UserOfClient(const std::string& client, const std::string& server);

// Whether the client of a connection over loopback runs as this process's user or as root. PermissionDenied, with both
// users, if not; and if the client's user cannot be found.
absl::Status CheckSameUser(const std::string& client, const std::string& server);

}  // namespace xlad
