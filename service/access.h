// Identifies the caller of a request and checks that the caller may make it: the rules of security/roles.h applied to
// the coordinator's calls. A call that is open when the token of its caller is revoked or expires ends.
//
// A job belongs to the user who submitted it. The log records the job under its client key, which begins with the owner
// ("@alice/KEY"), so the keys of different users never collide. Keys of the user who runs the coordinator have no such
// prefix.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "proto/job.pb.h"
#include "proto/xlad_v1.h"
#include "security/tokens.h"
#include "service/log/job.h"

namespace xlad::service {

class AccessControl;

// A caller that may make a call, and what the call may access.
struct CallerAccess {
  security::Caller caller;
  bool own_only = false;  // The call has access only to jobs and sessions of this caller.
  AccessControl* control = nullptr;  // What identified the caller. Null in tests without one.

  // Unauthenticated, with the reason, if the caller's token was revoked or has expired since the call began.
  absl::Status CheckToken() const;
};

// Identifies callers, and ends the streams of callers whose tokens become invalid. Thread-safe.
class AccessControl {
 public:
  // While it exists, its stream is watched.
  class Watched {
   public:
    ~Watched();

   private:
    friend class AccessControl;
    Watched(AccessControl* control, std::string token_id, std::function<void(const absl::Status&)> refuse)
        : control_(control), token_id_(std::move(token_id)), refuse_(std::move(refuse)) {}

    AccessControl* const control_;
    const std::string token_id_;
    std::function<void(const absl::Status&)> refuse_;  // Null when it has been called.
  };

  struct Options {
    std::string address;                     // HOST:PORT on which the coordinator listens; the host is numeric.
    std::string shared_token;                // A caller with this token is the owner. Empty if there is none.
    security::TokenStore* tokens = nullptr;  // May be null. Must outlive this object.
  };
  explicit AccessControl(Options options);
  ~AccessControl();  // No stream may be watched.

  // Returns the caller who connects from `peer` ("127.0.0.1:4711") and sends these bearer tokens. If the options have
  // neither a shared token nor a token store, the tokens are ignored. The owner is then any caller on loopback whose
  // process runs as root or as the coordinator's user. Returns Unauthenticated or PermissionDenied, with the reason, if
  // the caller cannot be identified. This is the only place where a caller gets its name for the log (Caller::actor):
  // "alice (token 1a2b3c4d)", "root (uid 0)", "uid 1000" for a user without a name on this machine, "alice (uid 1000,
  // shared token)" on loopback, or otherwise "shared token".
  absl::StatusOr<security::Caller> Identify(const std::string& peer, const std::vector<std::string>& bearers) const;
  // Unauthenticated, with the reason, if the caller's token was revoked or has expired since Identify.
  absl::Status Check(const security::Caller& caller) const;
  // Calls `refuse` with the error of Check, within about a second after the caller's token has become invalid. `refuse`
  // runs at most once, and not after the result has been destroyed. It must not block, and must not destroy the result.
  // Returns null if the caller has no token.
  std::unique_ptr<Watched> Watch(const security::Caller& caller, std::function<void(const absl::Status&)> refuse);

 private:
  absl::Status CheckToken(const std::string& token_id) const;
  // The name for the log of a user of this machine, who is identified by `how` if it is not empty.
  std::string ActorOf(uid_t user, absl::string_view how = "") const;
  std::string ActorOfSharedToken(const std::string& peer) const;
  void Run();
  void RefuseInvalid();

  const Options options_;
  mutable std::mutex names_mutex_;
  mutable std::map<uid_t, std::string> names_;  // The names of users of this machine; "" for those without one.
  std::mutex mutex_;  // Guards all following members.
  std::condition_variable ending_changed_;
  bool ending_ = false;
  std::set<Watched*> watched_;
  std::thread thread_;  // Started with the first stream that is watched.
};

// Returns the caller's access to the call. PermissionDenied names the caller's role and the roles that may make the
// call.
absl::StatusOr<CallerAccess> Authorize(const security::Caller& caller, absl::string_view call);

// The key under which a submission of this caller is recorded.
std::string OwnedKey(const security::Caller& caller, const std::string& client_key);

// Whether the caller may see the job with the client key `key`: its own jobs, or those of all users.
bool MaySee(const CallerAccess& access, absl::string_view key);
// NotFound if the caller may not see the job. The error does not reveal whether the job exists.
absl::Status CheckOwner(const CallerAccess& access, const std::string& job_id, absl::string_view key);

// PermissionDenied if the caller is a submitter and the spec has URIs other than "xlad:" and "stream:". Such URIs can
// name files on the machines of workers.
absl::Status CheckSpecOf(const security::Caller& caller, const JobSpec& spec);

}  // namespace xlad::service
