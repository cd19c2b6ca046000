// By which address other machines reach a server of this one.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad {

// Whether a server on this host listens on all addresses: "0.0.0.0" or "::".
bool IsWildcard(absl::string_view host);

// The numeric addresses of the interfaces of this machine, IPv4 first. Addresses that are valid on one link only are
// not among them.
std::vector<std::string> OwnAddresses();

// The address by which others reach a server that listens on `bound`: the host `advertise`, or else the host of
// `bound`, or, if that stands for all addresses, the first address of this machine that is not on loopback.
// FailedPrecondition if there is no such address.
absl::StatusOr<std::string> AddressForOthers(const std::string& bound, const std::string& advertise);

}  // namespace xlad
