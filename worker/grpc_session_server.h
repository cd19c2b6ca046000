// The server of a session's first worker (service SessionWorker in proto/worker.proto), for clients and for the other
// workers of the session.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "runtime/session_host.h"

namespace xlad::worker {

class SessionServer {
 public:
  // Reads an executable by its digest.
  using ReadExecutable = std::function<absl::StatusOr<std::string>(const std::string& digest)>;

  // Listens on a port of `listen_host`, a loopback address, because the connections are not encrypted. Calls must carry
  // `key` as their token. `host` must outlive the server.
  static absl::StatusOr<std::unique_ptr<SessionServer>> Start(const std::string& listen_host, const std::string& key,
                                                              runtime::SessionHost* host, ReadExecutable read);
  virtual ~SessionServer() = default;  // Ends all calls. The host must have been ended before.
  virtual std::string address() const = 0;  // HOST:PORT
};

}  // namespace xlad::worker
