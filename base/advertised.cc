#include "base/advertised.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/network.h"

namespace xlad {

bool IsWildcard(absl::string_view host) { return host == "0.0.0.0" || host == "::" || host.empty(); }

std::vector<std::string> OwnAddresses() {
  ifaddrs* all = nullptr;
  std::vector<std::string> four, six;
  if (getifaddrs(&all) != 0) return four;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char host[NI_MAXHOST];
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(at->ifa_addr, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (absl::StrContains(host, '%')) continue;  // A link-local address with its interface.
    (family == AF_INET ? four : six).emplace_back(host);
  }
  four.insert(four.end(), six.begin(), six.end());
  return four;
}

absl::StatusOr<std::string> AddressForOthers(const std::string& bound, const std::string& advertise) {
  XLAD_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(bound));
  if (!advertise.empty()) {
    const absl::StatusOr<std::string> host = ParseHost(advertise);
    if (!host.ok()) return Annotate(host.status(), "--advertise");
    return JoinHostPort(*host, at.port);
  }
  if (!IsWildcard(at.host)) return JoinHostPort(at.host, at.port);
  for (const std::string& address : OwnAddresses()) {
    if (!IsLoopback(address)) return JoinHostPort(address, at.port);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("found no address at which other machines reach ", bound, "; set one with --advertise HOST"));
}

}  // namespace xlad
