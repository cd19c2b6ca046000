// Byte streams between processes as an interface: TCP in daemons, in-memory pipes in tests and simulations.
//
// One thread may read a Connection while another one writes it. After a call has failed, all later calls of the same
// direction fail. Destroying a Connection or a Listener closes it; no call may be in progress then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"

namespace xlad {

// What the kernel knows of the answers of another machine. A kernel answers for processes that are busy or stopped.
struct Answers {
  bool awaited = false;     // Data or probes have been sent that are not answered yet.
  int64_t last_ms_ago = 0;  // When the last answer arrived.
};

class Connection {
 public:
  virtual ~Connection() = default;
  // Blocks until there is at least one byte, and reads at most bytes.size(). Unavailable if the peer has closed the
  // connection or cannot be reached.
  virtual absl::StatusOr<size_t> Read(absl::Span<std::byte> bytes) = 0;
  // Blocks until all bytes are written. Unavailable as for Read.
  virtual absl::Status Write(absl::Span<const std::byte> bytes) = 0;
  // Writes as many bytes as possible without blocking and returns their number. An implementation may always return 0.
  virtual size_t TryWrite(absl::Span<const std::byte> bytes) { return 0; }
  // Closes both directions. Blocked calls return Cancelled. May be called by any thread, and more than once.
  virtual void Shutdown() = 0;
  // The address of the other end, such as "127.0.0.1:4711", for messages.
  virtual std::string Peer() const = 0;
  // What is known of the answers of the other machine; nothing by default.
  virtual Answers GetAnswers() const { return {}; }
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Blocks until a peer connects.
  virtual absl::StatusOr<std::unique_ptr<Connection>> Accept() = 0;
  // A blocked Accept returns Cancelled, and so do later ones. May be called by any thread.
  virtual void Shutdown() = 0;
  // The address with its actual port, such as "127.0.0.1:4711", also if Listen was given port 0.
  virtual std::string Address() const = 0;
};

class Network {
 public:
  virtual ~Network() = default;
  // `address` is HOST:PORT; the system chooses a free port if PORT is 0. AlreadyExists if the port is in use,
  // InvalidArgument if the address is malformed or the host is unknown. Messages contain the address.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address) = 0;
  // Connects within timeout_ms, or returns Unavailable.
  virtual absl::StatusOr<std::unique_ptr<Connection>> Dial(const std::string& address, int64_t timeout_ms) = 0;
};

// TCP with TCP_NODELAY, on the system's clock. Connections to a machine that does not answer for 12 s become
// Unavailable. The object exists until the process ends.
Network& TcpNetwork();

// Takes over a connected stream socket, for example one that another process accepted. `peer` is for messages.
std::unique_ptr<Connection> AdoptSocket(int fd, const std::string& peer);

// The parts of "HOST:PORT" or "[IPV6]:PORT".
struct HostPort {
  std::string host;
  int port = 0;
};
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

// A listening TCP socket, which the caller closes. Errors: as Network::Listen.
absl::StatusOr<int> ListenFd(const std::string& address);
// The address to which a socket is bound, such as "127.0.0.1:4711".
std::string BoundAddress(int fd);

// Whether the host is "localhost" or a loopback address: 127.0.0.0/8 or ::1. No other name is loopback
// ("127.example.com" is a name), and names are not resolved.
bool IsLoopback(absl::string_view host);

}  // namespace xlad
