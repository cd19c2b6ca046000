// The connections of an HTTP server. Clients that send nothing, send slowly or do not take their responses occupy
// neither a thread nor much memory, and do not delay the answers to others.
//
// One thread reads the requests and sends the responses of all connections without blocking; other threads compute the
// responses. A connection carries one request. It is closed when its response has been sent, or if the client is late.
// The number of connections is limited (base/net/accept_gate.h): if more arrive, the oldest of those that have sent
// nothing is closed or, if all have sent something, the oldest of all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

namespace xlad::observe {

struct HttpLimits {
  // Each connection needs up to two descriptors. AcceptGate reserves 256 descriptors of the process for everything
  // other than the connections of its own server, so these connections must be few.
  int max_connections = 64;
  int64_t request_ms = 5000;  // The time in which a request must arrive.
  // The time in which the client must take a part of the response. The complete response has response_ms.
  int64_t progress_ms = 5000;
  int64_t response_ms = 60'000;
  // The limit on the bytes of all responses that wait for their clients. If there are more, the oldest are dropped. A
  // single response above the limit is replaced by the status 500.
  int64_t max_unsent_bytes = 64 << 20;
};

class HttpConnections {
 public:
  // Returns the bytes of the response to a request, which ends with its empty line. `client` is "127.0.0.1:4711" or
  // "[::1]:4711". Several threads may call it at once.
  using Answer = std::function<std::string(const std::string& request, const std::string& client)>;

  // Serves on `address`, HOST:PORT. Errors are those of AcceptGate::Listen.
  static absl::StatusOr<std::unique_ptr<HttpConnections>> Listen(const std::string& address, Answer answer,
                                                                 const HttpLimits& limits);
  // Waits until the responses that are being computed have been sent, but at most two seconds for clients that do not
  // take them. Requests that still wait for a thread are not answered.
  virtual ~HttpConnections() = default;
  // Returns HOST:PORT with the actual port.
  virtual std::string Address() const = 0;
};

}  // namespace xlad::observe
