// Accepts TCP connections for a server that cannot limit them itself, and hands over only those on which the client has
// sent at least one byte.
//
// A connection is unknown until the server reports an authenticated call on it. The number and the age of unknown
// connections are limited: if there are too many, the oldest is closed, and each is closed if it is still unknown after
// some time. Idle connections without a byte therefore cost the server almost nothing. They can neither stop it from
// accepting nor displace known connections. The technique is that of sshd's MaxStartups and LoginGraceTime.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad {

struct AcceptGateOptions {
  // The limit on silent and unknown connections together, which is at most half of max_connections: a greater value is
  // lowered. If one more connection arrives, the oldest of them is closed, preferably a silent one.
  int max_unknown = 1024;
  // The limit on all connections: silent, unknown and known. It is lowered if the limit on open files requires it. If
  // one more connection arrives, a silent or unknown one is closed as above, or the new one if all are known.
  int max_connections = 20000;
  int64_t first_byte_ms = 5000;  // A connection without a byte is closed after this time.
  int64_t unknown_ms = 15000;    // A connection that is still unknown is closed after this time.
};

struct AcceptGateCounts {
  int silent = 0;   // Accepted, but no byte has arrived.
  int unknown = 0;  // Handed over, but not known. Silent connections are not included.
  int known = 0;
  int64_t closed_early = 0;  // The number of connections that the gate itself has closed.
};

class AcceptGate {
 public:
  // Listens on HOST:PORT (if the port is 0, the system chooses one), but accepts no connection before Begin. A thread
  // of the gate calls `deliver` with each connection whose first bytes can be read. `deliver` then owns the descriptor,
  // which is non-blocking and has TCP_NODELAY. The connection must be shut down before its descriptor is closed,
  // because the gate keeps a duplicate to detect the end. Raises the soft limit on open files to the hard limit. Errors
  // are those of Network::Listen, and ResourceExhausted if the system has no descriptors left.
  static absl::StatusOr<std::unique_ptr<AcceptGate>> Listen(const std::string& address,
                                                            const AcceptGateOptions& options,
                                                            std::function<void(int fd)> deliver);
  // Closes the listening socket and the connections that have not been handed over.
  virtual ~AcceptGate() = default;

  // Begins to accept. Must be called once.
  virtual void Begin() = 0;
  // Returns HOST:PORT with the actual port.
  virtual std::string Address() const = 0;
  // Marks the connection from this peer, "127.0.0.1:4711" or "[::1]:4711", as known. Thread-safe.
  virtual void MarkKnown(const std::string& peer) = 0;
  // Thread-safe.
  virtual AcceptGateCounts Counts() const = 0;
};

}  // namespace xlad
