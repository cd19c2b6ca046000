// Finds the address at which other machines reach a server of this machine.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad {

// Whether a server that listens on `host` listens on all addresses: "0.0.0.0", "::" or "".
bool IsWildcard(absl::string_view host);

// Returns the numeric addresses of the interfaces of this machine, IPv4 first. Addresses that are valid on one link
// only are not included.
std::vector<std::string> OwnAddresses();

// Returns the HOST:PORT at which other machines reach a server that listens on `bound`, another HOST:PORT. The port is
// that of `bound`. The host is `advertise` (HOST or [IPV6]) if that is set, and otherwise the host of `bound`. If the
// host of `bound` stands for all addresses (IsWildcard), the first address of this machine that is not on loopback is
// returned instead. FailedPrecondition if there is no such address. InvalidArgument if `bound` or `advertise` is
// malformed.
absl::StatusOr<std::string> AddressForOthers(const std::string& bound, const std::string& advertise);

}  // namespace xlad
