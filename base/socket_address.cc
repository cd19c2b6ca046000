#include "base/socket_address.h"

#include <netdb.h>

#include "absl/strings/str_cat.h"

namespace xlad {

std::string SocketAddressText(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "?";
  }
  constexpr absl::string_view kMapped = "::ffff:";
  absl::string_view text = host;
  if (address.ss_family == AF_INET6 && text.substr(0, kMapped.size()) == kMapped &&
      text.find('.') != absl::string_view::npos) {
    return absl::StrCat(text.substr(kMapped.size()), ":", port);
  }
  return address.ss_family == AF_INET6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace xlad
