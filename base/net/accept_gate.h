// Accepts TCP connections for a server that cannot limit them itself, and hands over a connection only when the client
// has sent at least one byte.
//
// A connection is unknown until the server reports an authenticated call on it. The number, the age and the received
// bytes of unknown connections are limited: if there are too many, the oldest is closed, and each is closed if it is
// still unknown after unknown_ms, or after max_unknown_bytes. Connections on which the client sends nothing therefore
// cost the server almost nothing. They can neither displace known connections nor keep the server from accepting new
// ones. sshd limits connections in the same way (MaxStartups, LoginGraceTime).
//
// Known connections have owners. If there are too many, one of the owner that has the most is closed, so an owner with
// few connections cannot be kept out by another one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad {

struct AcceptGateOptions {
  // The limit on silent and unknown connections together. A value above half of max_connections is lowered to this
  // half. If one more connection arrives, the oldest silent one is closed, or the oldest unknown one if none is silent.
  int max_unknown = 1024;
  // The limit on all connections: silent, unknown and known. It is lowered if the limit on open files requires it. If
  // one more connection arrives, a silent or unknown one is closed as above. At most max_connections - max_unknown
  // connections are known, so there is always room for a new one. If one more becomes known, the newest one of the
  // owner that has the most is closed.
  int max_connections = 20000;
  int64_t first_byte_ms = 5000;  // A connection without a byte is closed after this time.
  int64_t unknown_ms = 15000;    // A connection that is still unknown is closed after this time.
  // A connection that is still unknown is closed, within about 0.1 s, when it has received more bytes than this. So a
  // server must report a call when it has read the header of the call, and must not read the message first. Until then,
  // a gRPC client sends only headers and what the server lets it send ahead: 1 MiB for each call of the coordinator,
  // and about 64 KiB for each call of a session.
  int64_t max_unknown_bytes = 2 << 20;
};

struct AcceptGateCounts {
  int silent = 0;   // Accepted, but no byte has arrived.
  int unknown = 0;  // Handed over, but not yet known. Silent connections are not included.
  int known = 0;
  int64_t closed_early = 0;  // The number of connections that the gate itself has closed.
};

class AcceptGate {
 public:
  // Listens on HOST:PORT (if the port is 0, the system chooses one), but accepts no connection before Begin. A thread
  // of the gate calls `deliver` with each connection whose first bytes can be read. `deliver` then owns the descriptor,
  // which is non-blocking and has TCP_NODELAY. The owner must call shutdown(2) before close(2), because the gate keeps
  // a duplicate of the descriptor to detect the end of the connection. Raises the soft limit on open files to the hard
  // limit. Errors are those of Network::Listen, and ResourceExhausted if the system has no descriptors left.
  static absl::StatusOr<std::unique_ptr<AcceptGate>> Listen(const std::string& address,
                                                            const AcceptGateOptions& options,
                                                            std::function<void(int fd)> deliver);
  // Calls StopAccepting, and then closes the gate's duplicates of all descriptors.
  virtual ~AcceptGate() = default;

  // Begins to accept. Must be called once.
  virtual void Begin() = 0;
  // Closes the listening socket and the silent connections. After it has returned, `deliver` is not called again. The
  // connections that were handed over stay open, but are no longer closed because of their age. When they end, their
  // duplicates stay open until the gate is destroyed. Idempotent, but not thread-safe. Must not be called by `deliver`,
  // because it waits for the thread that calls `deliver`; the destructor must not be called by `deliver` either.
  virtual void StopAccepting() = 0;
  // Returns HOST:PORT with the actual port.
  virtual std::string Address() const = 0;
  // Marks the connection from this peer, "127.0.0.1:4711" or "[::1]:4711", as known, and as one of `owner`, unless it
  // is known. Thread-safe.
  virtual void MarkKnown(const std::string& peer, const std::string& owner) = 0;
  // Thread-safe.
  virtual AcceptGateCounts Counts() const = 0;
};

}  // namespace xlad
