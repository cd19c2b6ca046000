#include "base/net/network.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <linux/tcp.h>  // As in accept_gate.cc, because the C library's header declares the same types.
#include <netdb.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/net/advertised.h"
#include "base/net/socket_address.h"

namespace xlad {
namespace {

// If another machine has been silent for this time, connections to it are closed. The time is longer than the 10 s
// after which a coordinator counts a worker as lost. If the coordinator can be reached, it is therefore the first to
// report that the worker is lost.
constexpr int64_t kMaxSilenceMs = 12'000;

// Whether the other end of a connected socket is on another machine.
bool IsRemote(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) return false;
  return IsOffLoopback(SocketAddressText(peer, size));
}

class TcpConnection final : public Connection {
 public:
  TcpConnection(int fd, std::string peer) : fd_(fd), peer_(std::move(peer)), is_remote_(IsRemote(fd)) {
    const int one = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (is_remote_) LimitSilence();
  }
  ~TcpConnection() override { close(fd_); }

  absl::StatusOr<size_t> Read(absl::Span<std::byte> bytes) override {
    if (bytes.empty()) return 0;  // recv would return 0 as if the peer had closed the connection.
    while (true) {
      const ssize_t n = recv(fd_, bytes.data(), bytes.size(), 0);
      if (n > 0) return n;
      if (n < 0 && errno == EINTR) continue;
      return Failure(n == 0 ? 0 : errno);
    }
  }

  absl::Status Write(absl::Span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Failure(errno);
      bytes.remove_prefix(n);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> TryWrite(absl::Span<const std::byte> bytes) override {
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return n;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
    return Failure(errno);
  }

  void Shutdown() override {
    shut_down_ = true;
    shutdown(fd_, SHUT_RDWR);
  }

  std::string Peer() const override { return peer_; }

  // The kernel also sends probes while the peer's receive buffer is full. These probes do not count as awaited, because
  // the pauses between them grow even if each probe is answered.
  Answers GetAnswers() const override {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (!is_remote_ || getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
    int unsent = 0;
    ioctl(fd_, SIOCOUTQ, &unsent);
    const bool is_probed_idle = info.tcpi_probes > 0 && unsent == 0;
    return {info.tcpi_unacked > 0 || is_probed_idle, info.tcpi_last_ack_recv};
  }

 private:
  // The kernel of the peer's machine answers probes and acknowledges data even if the peer's process is busy. A machine
  // that has lost power or its link does neither. Without these options, such a loss would be noticed only after about
  // 15 minutes, and never on an idle connection. A stopped process whose receive buffer stays full for kMaxSilenceMs
  // also counts as silent.
  void LimitSilence() {
    const std::pair<int, int> options[] = {{TCP_USER_TIMEOUT, static_cast<int>(kMaxSilenceMs)},  // For data in transit.
                                           {TCP_KEEPIDLE, 1},  // In seconds, for connections without data in transit.
                                           {TCP_KEEPINTVL, 1},
                                           {TCP_KEEPCNT, 10}};
    for (const auto& [name, value] : options) setsockopt(fd_, IPPROTO_TCP, name, &value, sizeof value);
    const int one = 1;
    setsockopt(fd_, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  }

  absl::Status Failure(int error) const {
    if (shut_down_) return absl::CancelledError(absl::StrCat("connection to ", peer_, " was shut down here"));
    if (error == 0) return absl::UnavailableError(absl::StrCat("peer ", peer_, " closed the connection"));
    if (error == ETIMEDOUT) {
      return absl::UnavailableError(absl::StrCat("the machine of peer ", peer_, " has not answered for ",
                                                 kMaxSilenceMs / 1000, " s: it or its link is down"));
    }
    return absl::UnavailableError(absl::StrCat("connection to ", peer_, ": ", std::strerror(error)));
  }

  const int fd_;
  const std::string peer_;
  const bool is_remote_;
  std::atomic<bool> shut_down_ = false;
};

class TcpListener final : public Listener {
 public:
  TcpListener(int fd, std::string address) : fd_(fd), address_(std::move(address)) {}
  ~TcpListener() override { close(fd_); }

  absl::StatusOr<std::unique_ptr<Connection>> Accept() override {
    while (true) {
      sockaddr_storage peer{};
      socklen_t size = sizeof peer;
      const int fd = accept4(fd_, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC);
      if (fd >= 0) return std::make_unique<TcpConnection>(fd, SocketAddressText(peer, size));
      if (shut_down_) return absl::CancelledError(absl::StrCat("listener on ", address_, " was shut down"));
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return absl::UnavailableError(absl::StrCat("accept on ", address_, ": ", std::strerror(errno)));
    }
  }

  void Shutdown() override {
    shut_down_ = true;
    shutdown(fd_, SHUT_RDWR);
  }

  std::string Address() const override { return address_; }

 private:
  const int fd_;
  const std::string address_;
  std::atomic<bool> shut_down_ = false;
};

class TcpNetworkImpl final : public Network {
 public:
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    XLAD_ASSIGN_OR_RETURN(const int fd, ListenFd(address));
    return std::make_unique<TcpListener>(fd, BoundAddress(fd));
  }

  absl::StatusOr<std::unique_ptr<Connection>> Dial(const std::string& address, int64_t timeout_ms) override {
    XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
    const int64_t end_ns = RealClock().NowNs() + timeout_ms * kNsPerMs;
    const std::atomic<int> never_stop = 0;
    XLAD_ASSIGN_OR_RETURN(const AddressList addresses,
                          ResolvePatiently(host_port.host, host_port.port, timeout_ms, &never_stop));
    const int64_t left_ms = std::max<int64_t>(0, (end_ns - RealClock().NowNs()) / kNsPerMs);
    const absl::StatusOr<int> fd = ConnectToAny(*addresses, left_ms);
    if (!fd.ok()) return Annotate(fd.status(), absl::StrCat("cannot connect to ", address));
    return std::make_unique<TcpConnection>(*fd, address);
  }
};

}  // namespace

absl::StatusOr<int> ListenFd(const std::string& address) {
  XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  const absl::StatusOr<AddressList> addresses = Resolve(host_port.host, host_port.port, AI_PASSIVE);
  if (!addresses.ok()) {
    return absl::Status(addresses.status().code(), absl::StrCat(addresses.status().message(),
                                                                "; the interfaces of this machine are ",
                                                                InterfacesText()));
  }
  int error = 0;
  // "localhost" may resolve to ::1 first, even on a machine without IPv6.
  for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) {
    FileDescriptor fd(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd.is_open()) {
      const int one = 1;
      setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
      if (bind(fd.get(), at->ai_addr, at->ai_addrlen) == 0 && listen(fd.get(), SOMAXCONN) == 0) return fd.Release();
    }
    if (error == 0 || errno == EADDRINUSE) error = errno;
    if (error == EADDRINUSE) break;  // Another program has this address, and clients could reach it instead.
  }
  const std::string text = absl::StrCat("cannot listen on ", address, ": ", std::strerror(error));
  return error == EADDRINUSE ? absl::AlreadyExistsError(text) : absl::UnavailableError(text);
}

std::string BoundAddress(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  return SocketAddressText(bound, size);
}

Network& TcpNetwork() {
  static TcpNetworkImpl network;
  return network;
}

std::unique_ptr<Connection> AdoptSocket(int fd, const std::string& peer) {
  return std::make_unique<TcpConnection>(fd, peer);
}

namespace {

// Whether the text can be a name or an IPv4 address.
bool IsName(absl::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
  });
}

// Whether the text is an IPv6 address, which may end with the name of an interface ("fe80::1%eth0").
bool IsIpv6(absl::string_view text) {
  const size_t percent = text.find('%');
  if (percent != absl::string_view::npos && !IsName(text.substr(percent + 1))) return false;
  const std::string digits(text.substr(0, percent));
  in6_addr address{};
  return digits.find('\0') == std::string::npos && inet_pton(AF_INET6, digits.c_str(), &address) == 1;
}

// Removes the brackets around an IPv6 address. Returns nullopt if there are other brackets.
std::optional<absl::string_view> WithoutBrackets(absl::string_view host) {
  if (host.find_first_of("[]") == absl::string_view::npos) return host;
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return std::nullopt;
  host = host.substr(1, host.size() - 2);
  return IsIpv6(host) ? std::optional(host) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::string> ParseHost(absl::string_view text) {
  const std::optional<absl::string_view> host = WithoutBrackets(text);
  if (host.has_value() && (IsName(*host) || IsIpv6(*host))) return std::string(*host);
  return absl::InvalidArgumentError(
      absl::StrCat("found host \"", text, "\", expected a name, an IPv4 address, an IPv6 address or [IPV6], each ",
                   "without a port"));
}

std::string JoinHostPort(absl::string_view host, int port) {
  const bool is_six = host.find(':') != absl::string_view::npos;
  return is_six ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  HostPort out;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(address.substr(colon + 1), &out.port) || out.port < 0 ||
      out.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("found address \"", address, "\", expected HOST:PORT with a port of 0 to 65535"));
  }
  const std::optional<absl::string_view> host = WithoutBrackets(address.substr(0, colon));
  if (!host.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found address \"", address, "\", expected brackets around an IPv6 address only, [IPV6]:PORT"));
  }
  if (host->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found address \"", address, "\" without a host, expected HOST:PORT"));
  }
  out.host = std::string(*host);
  return out;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

bool IsLoopback(absl::string_view host) {
  constexpr uint32_t kLoopbackNet = 127;
  const std::string text(host);
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == kLoopbackNet;
  if (inet_pton(AF_INET6, text.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

bool IsOffLoopback(absl::string_view address) {
  const absl::StatusOr<HostPort> at = ParseHostPort(address);
  return at.ok() && !IsLoopback(at->host);
}

}  // namespace xlad
