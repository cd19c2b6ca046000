// Socket addresses: their text, for logs and for the names of peers, and connections to them.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace xlad {

// Returns "127.0.0.1:4711" or "[::1]:4711". An IPv4 address in IPv6 form is written as IPv4. Returns "?" for other
// kinds of addresses.
std::string SocketAddressText(const sockaddr_storage& address, socklen_t size);

// A nonempty list that getaddrinfo returned.
using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Returns the addresses of a host for TCP. `flags` are those of getaddrinfo. Unavailable if the name may be resolved
// later, because no name server has answered or this machine lacks memory or descriptors. InvalidArgument if the host
// does not exist.
absl::StatusOr<AddressList> Resolve(const std::string& host, int port, int flags);

// Like Resolve, but tries again after Unavailable, for up to `patience_ms` while *stop is 0.
absl::StatusOr<AddressList> ResolvePatiently(const std::string& host, int port, int64_t patience_ms,
                                             const std::atomic<int>* stop);

// Connects to one of the addresses of a host: a nonempty list that getaddrinfo returned. Tries them in order, each for
// an equal share of the remaining time. Returns the connected socket, which the caller owns. It is blocking and
// close-on-exec. If no address accepts the connection, returns Unavailable with the system's reason for the last one.
absl::StatusOr<int> ConnectToAny(const addrinfo& addresses, int64_t timeout_ms);

// Returns the numeric address of this machine on which a server must listen so that `host`, and other machines that
// reach `host`, can connect to it. It is the first of these that applies:
//   - 127.0.0.1, if `host` is loopback (IsLoopback)
//   - the address from which this machine sends to `host`, unless it is on loopback (then `host` is a name of this
//     machine) or link-local with an interface ("fe80::1%eth0", whose name has a meaning only on this machine)
//   - the first address of this machine that is not on loopback (AddressForOthers)
//   - the address from which this machine sends to `host`
// Nothing is sent except to name servers. When a machine starts, it may have no name server and no route yet, so each
// error is followed by another try, for up to `patience_ms` while *stop is 0. Unavailable after the last try.
absl::StatusOr<std::string> OwnHostTowards(const std::string& host, int port, int64_t patience_ms,
                                           const std::atomic<int>* stop);

}  // namespace xlad
