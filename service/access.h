// Who makes a call, and whether it may: the rules of security/roles.h applied to the calls of the coordinator.
//
// A job belongs to the user who has submitted it. Its owner is a part of its client key, under which it is in the log,
// so that keys of different users do not meet: "@alice/KEY". Keys of the coordinator's own user have no such part.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/job.pb.h"
#include "proto/xlad_v1.h"
#include "security/tokens.h"

namespace xlad::service {

// A call that may be made.
struct CallerAccess {
  security::Caller caller;
  bool own_only = false;  // Only jobs and sessions of the same user.
};

// How callers are identified. Thread-safe.
class AccessControl {
 public:
  struct Options {
    std::string address;                     // Where the coordinator listens: HOST:PORT, the host numeric.
    std::string shared_token;                // Who has it is the owner; empty: there is none.
    security::TokenStore* tokens = nullptr;  // May be null. Outlives this object.
  };
  explicit AccessControl(Options options) : options_(std::move(options)) {}

  // Who calls from `peer` ("127.0.0.1:4711") with these bearer tokens. Without tokens in the options, a caller on
  // loopback is the owner if it is the same user of this machine, or root. Unauthenticated or PermissionDenied, with
  // the reason, for all others.
  absl::StatusOr<security::Caller> Identify(const std::string& peer, const std::vector<std::string>& bearers) const;

 private:
  const Options options_;
};

// PermissionDenied, with the caller's role and those that may, unless the caller may make this call.
absl::StatusOr<CallerAccess> Authorize(const security::Caller& caller, absl::string_view call);

// The key under which a submission of this caller is recorded.
std::string OwnedKey(const security::Caller& caller, const std::string& client_key);
// The user in such a key, or "" if there is none.
std::string OwnerOfKey(absl::string_view key);

// NotFound, as for a job that does not exist, if the caller sees only its own jobs and `key` is another user's.
absl::Status CheckOwner(const CallerAccess& access, const std::string& job_id, absl::string_view key);

// PermissionDenied for what the spec of a submitter may not name: files of the machines on which workers run.
absl::Status CheckSpecOf(const security::Caller& caller, const JobSpec& spec);

}  // namespace xlad::service
