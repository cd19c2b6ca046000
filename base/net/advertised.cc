#include "base/net/advertised.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/net/network.h"

namespace xlad {

bool IsWildcard(absl::string_view host) { return host == "0.0.0.0" || host == "::" || host.empty(); }

namespace {

struct Interface {
  std::string name;
  std::vector<std::string> four, six;  // The addresses by version of IP, without link-local IPv6 addresses.
};

Interface& Named(const std::string& name, std::vector<Interface>* all) {
  for (Interface& interface : *all) {
    if (interface.name == name) return interface;
  }
  all->emplace_back().name = name;
  return all->back();
}

std::vector<Interface> OwnInterfaces() {
  std::vector<Interface> interfaces;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    Interface& interface = Named(at->ifa_name, &interfaces);
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char host[NI_MAXHOST];
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(at->ifa_addr, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (absl::StrContains(host, '%')) continue;  // A link-local address with its interface.
    (family == AF_INET ? interface.four : interface.six).emplace_back(host);
  }
  return interfaces;
}

// Returns an empty text if there is no address.
std::string FirstAddress(const Interface& interface) {
  for (const std::string& address : interface.four) {
    if (!absl::StartsWith(address, "169.254.")) return address;  // Not a link-local address.
  }
  return interface.six.empty() ? "" : interface.six.front();
}

}  // namespace

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> four, six;
  for (const Interface& interface : OwnInterfaces()) {
    four.insert(four.end(), interface.four.begin(), interface.four.end());
    six.insert(six.end(), interface.six.begin(), interface.six.end());
  }
  four.insert(four.end(), six.begin(), six.end());
  return four;
}

std::string InterfacesText() {
  std::vector<std::string> texts;
  for (const Interface& interface : OwnInterfaces()) {
    const std::string address = FirstAddress(interface);
    if (!address.empty()) texts.push_back(absl::StrCat(interface.name, " (", address, ")"));
  }
  return absl::StrJoin(texts, ", ");
}

absl::StatusOr<std::string> AddressOfInterface(const std::string& host) {
  for (const Interface& interface : OwnInterfaces()) {
    if (interface.name != host) continue;
    std::string address = FirstAddress(interface);
    if (!address.empty()) return address;
    return absl::FailedPreconditionError(absl::StrCat("interface ", host, " is down or has no address; found ",
                                                      InterfacesText(), ", expected one of these"));
  }
  return host;
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
