#include "base/net/socket_address.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/net/advertised.h"
#include "base/net/network.h"

namespace xlad {
namespace {

// Connects a non-blocking socket before the deadline. Returns 0 or an errno value.
int ConnectBefore(int fd, const addrinfo& to, int64_t deadline_ns) {
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  // SO_ERROR is also 0 while the connection is being established. It is meaningful only after poll has returned 1.
  pollfd ready{fd, POLLOUT, 0};
  int n = -1;
  while (n < 0) {
    const int64_t left_ms = (deadline_ns - RealClock().NowNs()) / kNsPerMs;
    n = poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left_ms, 0, std::numeric_limits<int>::max())));
    if (n < 0 && errno != EINTR) return errno;
  }
  if (n == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

constexpr std::chrono::milliseconds kAgainAfter{200};

// Returns the first result of `attempt` that is not Unavailable, or the last one after `patience_ms` or when *stop is
// not 0.
template <typename Attempt>
auto Patiently(int64_t patience_ms, const std::atomic<int>* stop, const Attempt& attempt) -> decltype(attempt()) {
  const int64_t give_up_ns = RealClock().NowNs() + patience_ms * kNsPerMs;
  for (bool logged = false;; logged = true) {
    auto result = attempt();
    const bool gives_up = RealClock().NowNs() >= give_up_ns || *stop != 0;
    if (!absl::IsUnavailable(result.status()) || gives_up) return result;
    if (!logged) LogWarn("waiting for the network", {{"error", std::string(result.status().message())}});
    std::this_thread::sleep_for(kAgainAfter);
  }
}

// Returns the address of this machine, without a port, from which it sends to one of the addresses. Tries them in
// order. A datagram socket that is connected has this address, and connecting it sends nothing.
absl::StatusOr<std::string> SendingAddress(const addrinfo& addresses) {
  int error = 0;
  for (const addrinfo* to = &addresses; to != nullptr; to = to->ai_next) {
    const FileDescriptor fd(socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (fd.is_open() && connect(fd.get(), to->ai_addr, to->ai_addrlen) == 0 &&
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0) {
      XLAD_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(SocketAddressText(own, size)));
      return at.host;
    }
    error = errno;
  }
  return absl::UnavailableError(std::strerror(error));
}

}  // namespace

absl::StatusOr<AddressList> Resolve(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &list);
  if (error == 0) return AddressList(list, freeaddrinfo);
  const std::string text = absl::StrCat("cannot resolve host ", host, ": ",
                                        error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
  const bool may_succeed_later = error == EAI_AGAIN || error == EAI_MEMORY || error == EAI_SYSTEM;
  return may_succeed_later ? absl::UnavailableError(text) : absl::InvalidArgumentError(text);
}

absl::StatusOr<AddressList> ResolvePatiently(const std::string& host, int port, int64_t patience_ms,
                                             const std::atomic<int>* stop) {
  return Patiently(patience_ms, stop, [&] { return Resolve(host, port, /*flags=*/0); });
}

absl::StatusOr<std::string> OwnHostTowards(const std::string& host, int port, int64_t patience_ms,
                                           const std::atomic<int>* stop) {
  if (IsLoopback(host)) return "127.0.0.1";
  const absl::StatusOr<std::string> own = Patiently(patience_ms, stop, [&]() -> absl::StatusOr<std::string> {
    const absl::StatusOr<AddressList> addresses = Resolve(host, port, /*flags=*/0);
    // The name of a host may become known only when the host starts.
    if (!addresses.ok()) return absl::UnavailableError(addresses.status().message());
    absl::StatusOr<std::string> address = SendingAddress(**addresses);
    return address.ok() ? address : Annotate(address.status(), absl::StrCat("no route to ", host));
  });
  if (!own.ok() || (!IsLoopback(*own) && own->find('%') == std::string::npos)) return own;
  const absl::StatusOr<std::string> other = AddressForOthers("0.0.0.0:0", /*advertise=*/"");
  return other.ok() ? ParseHostPort(*other)->host : own;
}

absl::StatusOr<int> ConnectToAny(const addrinfo& addresses, int64_t timeout_ms) {
  const int64_t end_ns = RealClock().NowNs() + timeout_ms * kNsPerMs;
  int64_t untried = 0;
  for (const addrinfo* to = &addresses; to != nullptr; to = to->ai_next) ++untried;
  int error = 0;
  for (const addrinfo* to = &addresses; to != nullptr; to = to->ai_next, --untried) {
    const int64_t now_ns = RealClock().NowNs();
    const int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    error = fd < 0 ? errno : ConnectBefore(fd, *to, now_ns + (end_ns - now_ns) / untried);
    if (error == 0) {
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      return fd;
    }
    if (fd >= 0) close(fd);
  }
  return absl::UnavailableError(std::strerror(error));
}

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
