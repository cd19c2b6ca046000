// Finds the address at which other machines reach a server on this machine.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad {

// Whether a server that listens on `host` listens on all addresses: "0.0.0.0", "::" or "".
bool IsWildcard(absl::string_view host);

// Returns the numeric addresses of this machine's interfaces, IPv4 first. IPv6 link-local addresses are not included.
std::vector<std::string> OwnAddresses();

// Returns the HOST:PORT at which other machines reach a server that listens on `bound` (HOST:PORT). The port is that of
// `bound`. The host is the first of these that applies:
//   - `advertise` (HOST or [IPV6]), if it is not empty
//   - the host of `bound`, unless it stands for all addresses (IsWildcard)
//   - this machine's first address that is not on loopback
// FailedPrecondition if none applies. InvalidArgument if `bound` or `advertise` is malformed.
absl::StatusOr<std::string> AddressForOthers(const std::string& bound, const std::string& advertise);

}  // namespace xlad
