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

// If `host` is the name of an interface of this machine, such as "eth0", returns its first address, IPv4 before IPv6.
// Link-local addresses are not included. FailedPrecondition, with the interfaces that have an address, if this one has
// none. Any other host is returned unchanged.
absl::StatusOr<std::string> AddressOfInterface(const std::string& host);

// Returns the names of this machine's interfaces that have an address, each with the address that AddressOfInterface
// returns: "lo (127.0.0.1), eth0 (10.0.0.2)". For messages.
std::string InterfacesText();

// Returns the HOST:PORT at which other machines reach a server that listens on `bound` (HOST:PORT). The port is that of
// `bound`. The host is the first of these that applies:
//   - `advertise` (HOST or [IPV6]), if it is not empty
//   - the host of `bound`, unless it stands for all addresses (IsWildcard)
//   - this machine's first address that is not on loopback
// FailedPrecondition if none applies. InvalidArgument if `bound` or `advertise` is malformed.
absl::StatusOr<std::string> AddressForOthers(const std::string& bound, const std::string& advertise);

}  // namespace xlad
