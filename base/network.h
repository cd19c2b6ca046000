// Byte streams between processes as an interface: TCP in a daemon, pipes in memory in tests and simulations.
//
// A Connection may be read by one thread and written by another at the same time. After an error it stays in
// error. Deadlines are on the Clock the network was made with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"

namespace xlad {

class Connection {
 public:
  virtual ~Connection() = default;
  // Reads at least one byte and at most bytes.size(); blocks. Unavailable when the peer has closed or is gone.
  virtual absl::StatusOr<size_t> Read(absl::Span<std::byte> bytes) = 0;
  // Writes everything; blocks. Unavailable when the peer is gone.
  virtual absl::Status Write(absl::Span<const std::byte> bytes) = 0;
  // Writes as much as goes without waiting; returns how much that was (0: nothing, or not supported).
  virtual size_t TryWrite(absl::Span<const std::byte> bytes) { return 0; }
  // Ends both directions and wakes blocked calls, which return Cancelled. From any thread, more than once.
  virtual void Shutdown() = 0;
  // "127.0.0.1:4711": the other end, for messages.
  virtual std::string Peer() const = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual absl::StatusOr<std::unique_ptr<Connection>> Accept() = 0;
  // Wakes a blocked Accept, which returns Cancelled.
  virtual void Shutdown() = 0;
  // "127.0.0.1:4711", with the port that the system chose where 0 was asked for.
  virtual std::string Address() const = 0;
};

class Network {
 public:
  virtual ~Network() = default;
  // `address` is HOST:PORT. Listening fails with a message that names the address and says so where the port is
  // in use.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address) = 0;
  virtual absl::StatusOr<std::unique_ptr<Connection>> Dial(const std::string& address, int64_t timeout_ms) = 0;
};

// TCP with TCP_NODELAY. Lives as long as the process.
Network& TcpNetwork();

// "HOST:PORT" or "[V6]:PORT" taken apart.
struct HostPort {
  std::string host;
  int port = 0;
};
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

// Whether every address that the host stands for is a loopback one ("localhost", "127.0.0.1", "::1").
bool IsLoopback(absl::string_view host);

}  // namespace xlad
