// The server of a session's first worker (service SessionWorker in proto/worker.proto), for clients and for the other
// workers of the session.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/session_host.h"

namespace xlad::worker {

// Who may make a call of the service SessionWorker. All other calls are denied. docs/reference/security.md shows this
// table.
enum class SessionCaller {
  kClient,    // Clients of the session, and the coordinator on their behalf.
  kFollower,  // The other workers of the session.
};
struct SessionCallRule {
  const char* call;
  SessionCaller caller;
};
const std::vector<SessionCallRule>& SessionCallRules();

// Who may call the server, by the token of the call. If there is a secret, a client cannot make the calls of workers, a
// worker cannot make the calls of clients or follow as another worker, and a program is added only with the
// coordinator's seal. Otherwise all calls have the client's key.
struct SessionAccess {
  std::string client_key;
  std::string secret;                  // See security/session_keys.h. If empty, seals are not checked.
  std::vector<std::string> followers;  // The ids of the other workers.
};
// `launch` is the task of the session's first worker, whose id is `worker_id`.
SessionAccess AccessOf(const LaunchTask& launch, const std::string& worker_id);

class SessionServer {
 public:
  // Reads an executable by its digest.
  using ReadExecutable = std::function<absl::StatusOr<std::string>(const std::string& digest)>;

  // Listens on a port of `listen_host`. If this is not loopback, connections use TLS, with a key and an authority that
  // this function makes for this server alone. `host` must outlive the server.
  static absl::StatusOr<std::unique_ptr<SessionServer>> Start(const std::string& listen_host,
                                                              const SessionAccess& access, runtime::SessionHost* host,
                                                              ReadExecutable read);
  virtual ~SessionServer() = default;  // Ends all calls. The SessionHost must have ended before.
  virtual std::string address() const = 0;  // HOST:PORT, with the host on which it listens.
  // The certificate (PEM) of the authority; empty on loopback. The server's certificate is for kSessionHostName.
  virtual std::string authority() const = 0;
};

}  // namespace xlad::worker
