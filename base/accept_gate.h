// Accepts TCP connections for a server that cannot limit them itself, and hands over only those on which the client has
// sent at least one byte.
//
// A connection is unknown until the server says that an authenticated call came over it. Unknown connections are
// bounded in number and in time: when there are too many, the oldest one is closed, and each is closed if it is still
// unknown after some time. Idle connections without a byte therefore cost the server nothing, and can neither stop it
// from accepting nor displace the connections that are known. The technique is that of sshd's MaxStartups and
// LoginGraceTime.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad {

struct AcceptGateOptions {
  int max_unknown = 1024;        // When a further one arrives, the oldest is closed, first those without a byte.
  int max_connections = 20000;   // Silent, unknown and known ones. Lowered if the limit on open files requires it.
  int64_t first_byte_ms = 5000;  // A connection without a byte is closed after this time.
  int64_t unknown_ms = 15000;    // A connection that is still unknown is closed after this time.
};

struct AcceptGateCounts {
  int silent = 0;   // Accepted, but without a byte so far.
  int unknown = 0;  // Handed over, but not known. `silent` is not included.
  int known = 0;
  int64_t closed_early = 0;  // The number of connections that the gate itself has closed.
};

class AcceptGate {
 public:
  // Listens on HOST:PORT (port 0: any free one); nothing is accepted before Begin. `deliver` is called on a thread of
  // the gate with each connection whose first bytes can be read. It owns the descriptor, which is non-blocking and has
  // TCP_NODELAY, and must shut the connection down before it closes the descriptor: the gate keeps a duplicate, by
  // which it sees the end. Raises the soft limit on open files to the hard limit. Errors: as Network::Listen.
  static absl::StatusOr<std::unique_ptr<AcceptGate>> Listen(const std::string& address,
                                                            const AcceptGateOptions& options,
                                                            std::function<void(int fd)> deliver);
  // Closes the listening socket and the connections that have not been handed over.
  virtual ~AcceptGate() = default;

  // Begins to accept. Called once.
  virtual void Begin() = 0;
  // HOST:PORT, with the actual port.
  virtual std::string Address() const = 0;
  // Marks the connection from this peer, "127.0.0.1:4711" or "[::1]:4711", as known. Thread-safe.
  virtual void Know(const std::string& peer) = 0;
  // Thread-safe.
  virtual AcceptGateCounts Counts() const = 0;
};

}  // namespace xlad
