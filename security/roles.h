// Which roles may make which calls. One table decides this, and calls that are not in it are denied.
// docs/reference/security.md shows the table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad::security {

enum class Role {
  kReader,     // May see all jobs and workers.
  kSubmitter,  // May submit jobs and open sessions. May see, change and stop those of its user.
  kWorker,     // May run attempts.
  kOperator,   // May make all calls except Attach, the call with which a worker connects.
  kOwner,      // May make all calls: the user who runs the coordinator, or a caller with its shared token.
};

// "reader", "submitter", "worker", "operator", "owner".
absl::string_view RoleName(Role role);
// The roles that a token can have: all but kOwner.
std::optional<Role> ParseRole(absl::string_view name);

enum class Access {
  kDenied,
  kOwn,  // Allowed for jobs and sessions of the same user.
  kAll,
};

// `call` is the name of a method, such as "SubmitJob", or "grpc.health.v1.Health/Watch" if it is not one of the
// coordinator's own service. kDenied for calls that are not in the table.
Access AccessTo(absl::string_view call, Role role);

struct CallRule {
  const char* call;
  Access reader, submitter, worker, op;
};
const std::vector<CallRule>& CallRules();

// The caller.
struct Caller {
  std::string user;  // The user who owns what the caller submits. Empty for kOwner.
  Role role = Role::kOwner;
};

// Whether the name of a user is valid: 1 to 32 characters of a-z, 0-9, "-", "_" and ".", the first a letter.
bool IsUserName(absl::string_view name);

}  // namespace xlad::security
