// Which roles may make which calls: one table, which docs/reference/security.md shows. Calls that are not in the table
// are denied, except grpc.health.v1.Health/Check, which every caller may make (service/rpc/grpc_calls.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad::security {

enum class Role {
  kReader,     // May see all jobs and workers.
  kSubmitter,  // May submit jobs and open sessions, and may see, change and stop those of its user.
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

// `call` is METHOD for a method of the coordinator's own service ("SubmitJob"), and SERVICE/METHOD for a method of
// another service ("grpc.health.v1.Health/Watch"). kDenied for calls that are not in the table.
Access AccessTo(absl::string_view call, Role role);

// A row of the table: the access of each role, `op` for operators. Owners have access to all calls in the table.
struct CallRule {
  const char* call;
  Access reader, submitter, worker, op;
};
const std::vector<CallRule>& CallRules();

struct Caller {
  std::string user;  // The user who owns the caller's jobs and sessions. Empty for kOwner.
  Role role = Role::kOwner;
  std::string token_id = {};  // The id of the caller's token. Empty for kOwner.
  // How messages and logs name the caller: the user and, in brackets, how the user was identified. Set by
  // service/access.h.
  std::string actor = {};
};

// Whether the name of a user is valid: 1 to 32 characters of a-z, 0-9, "-", "_" and ".", the first a letter.
bool IsUserName(absl::string_view name);
inline constexpr char kUserNameText[] = "1 to 32 characters of a-z, 0-9, -, _ and ., the first a letter";

}  // namespace xlad::security
