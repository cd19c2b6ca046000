// An HTTP/1.1 server for small pages: metrics, health, a dashboard. It accepts only GET and HEAD, and one request per
// connection.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "observe/http_connections.h"

namespace xlad::observe {

struct HttpRequest {
  std::string path;                          // "/api/job", without the query.
  std::map<std::string, std::string> query;  // Decoded. If a name is repeated, its first value.
  std::string client;                        // "127.0.0.1:4711" or "[::1]:4711".
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

// Several threads may call the handler at once.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

class HttpServer {
 public:
  // Serves on `address`, HOST:PORT; the system chooses a free port if PORT is 0. AlreadyExists if the port is in use,
  // InvalidArgument if `address` is malformed. Other errors are those of AcceptGate::Listen.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, HttpHandler handler,
                                                           const HttpLimits& limits = HttpLimits());
  // Answers the requests that the handler has begun to answer, then stops the server.
  virtual ~HttpServer() = default;
  // Returns HOST:PORT with the actual port.
  virtual std::string Address() const = 0;
};

}  // namespace xlad::observe
