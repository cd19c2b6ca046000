// Byte streams between processes as an interface: TCP in daemons, in-memory pipes in tests and simulations.
//
// One thread may read a Connection while another one writes it. After a call has failed, all later calls of the same
// direction fail. Destroying a Connection or a Listener closes it. No call may be in progress then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"

namespace xlad {

// What this machine's kernel knows about the TCP answers (acknowledgments) of another machine. The kernel of the other
// machine also answers while its process is busy or stopped.
struct Answers {
  bool awaited = false;     // Whether data or probes that were sent have not been answered yet.
  int64_t last_ms_ago = 0;  // The time since the last answer arrived.
};

class Connection {
 public:
  virtual ~Connection() = default;
  // Blocks until there is at least one byte, and reads at most bytes.size() bytes. Unavailable if the peer has closed
  // the connection or cannot be reached.
  virtual absl::StatusOr<size_t> Read(absl::Span<std::byte> bytes) = 0;
  // Blocks until all bytes are written. Unavailable if the peer has closed the connection or cannot be reached.
  virtual absl::Status Write(absl::Span<const std::byte> bytes) = 0;
  // Writes as many bytes as possible without blocking and returns their number. An implementation may always return 0.
  // Unavailable if the connection is broken, so that a later call cannot write more.
  virtual absl::StatusOr<size_t> TryWrite(absl::Span<const std::byte> bytes) { return 0; }
  // Closes both directions. Blocked calls return Cancelled. May be called by any thread, and more than once.
  virtual void Shutdown() = 0;
  // Returns the address of the other end, such as "127.0.0.1:4711", for messages.
  virtual std::string Peer() const = 0;
  // Returns the kernel's information about the answers of the other machine. By default, no answer is awaited.
  virtual Answers GetAnswers() const { return {}; }
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Blocks until a peer connects.
  virtual absl::StatusOr<std::unique_ptr<Connection>> Accept() = 0;
  // Makes a blocked Accept and all later ones return Cancelled. May be called by any thread.
  virtual void Shutdown() = 0;
  // Returns the address with its actual port, such as "127.0.0.1:4711", even if Listen was called with port 0.
  virtual std::string Address() const = 0;
};

class Network {
 public:
  virtual ~Network() = default;
  // `address` is HOST:PORT; the system chooses a free port if PORT is 0. Listens on the first of the host's addresses
  // on which this machine can listen. AlreadyExists if the port is in use, InvalidArgument if the address is malformed
  // or the host is unknown. Unavailable if the system refuses for another reason. Messages contain the address.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address) = 0;
  // Connects within timeout_ms, or returns Unavailable. Tries all addresses of the host. InvalidArgument as in Listen.
  // timeout_ms does not limit the lookup of the host's name.
  virtual absl::StatusOr<std::unique_ptr<Connection>> Dial(const std::string& address, int64_t timeout_ms) = 0;
};

// Returns TCP with TCP_NODELAY, on the system's clock. If another machine does not answer for 12 s, the connections to
// it fail with Unavailable. The object exists until the process ends.
Network& TcpNetwork();

// Takes ownership of a connected stream socket, for example one that another process accepted. `peer` is for messages.
std::unique_ptr<Connection> AdoptSocket(int fd, const std::string& peer);

// The parts of "HOST:PORT" or "[IPV6]:PORT".
struct HostPort {
  std::string host;
  int port = 0;
};
// InvalidArgument if the host is empty, if brackets are not around an IPv6 address, or if the port is not a number from
// 0 to 65535.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);
// The host of a text without a port: "IPV6", "[IPV6]", or a name or an IPv4 address of ASCII letters, digits, "-", "."
// and "_". IPV6 may end with "%" and the name of an interface, of the same characters. The result has no brackets.
// InvalidArgument for any other text, such as one with a port.
absl::StatusOr<std::string> ParseHost(absl::string_view text);
// The reverse of ParseHostPort: "HOST:PORT", or "[IPV6]:PORT" if the host contains a colon.
std::string JoinHostPort(absl::string_view host, int port);

// Returns a listening TCP socket, which the caller must close. Errors are those of Network::Listen.
absl::StatusOr<int> ListenFd(const std::string& address);
// Returns the address to which a socket is bound, such as "127.0.0.1:4711".
std::string BoundAddress(int fd);

// Returns the name of this machine, or an empty text if the system does not report it.
std::string HostName();

// Whether the host is "localhost" or a loopback address: 127.0.0.0/8 or ::1. Other names are not loopback
// ("127.example.com" is a name), and names are not resolved.
bool IsLoopback(absl::string_view host);
// Whether `address` is HOST:PORT and the host is not loopback. Connections to such an address may leave the machine.
bool IsOffLoopback(absl::string_view address);

}  // namespace xlad
