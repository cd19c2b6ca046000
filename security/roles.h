// Who may call what: one table, which denies what it does not name. docs/reference/security.md has it for readers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad::security {

enum class Role {
  kReader,     // Sees all jobs and workers.
  kSubmitter,  // Submits jobs and opens sessions; sees, changes and stops its own.
  kWorker,     // Runs attempts.
  kOperator,   // All calls of readers and submitters for all jobs, and the administration of workers.
  kOwner,      // The user who runs the coordinator, on its machine: everything.
};

// "reader", "submitter", "worker", "operator", "owner".
absl::string_view RoleName(Role role);
// The roles that a token can have: all but kOwner.
std::optional<Role> ParseRole(absl::string_view name);

enum class Access {
  kDenied,
  kOwn,  // For jobs and sessions of the same user.
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

// Who makes a call.
struct Caller {
  std::string user;  // The owner of what it submits. Empty for kOwner.
  Role role = Role::kOwner;
};

// Whether the name of a user is valid: 1 to 32 characters of a-z, 0-9, "-", "_" and ".", the first a letter.
bool IsUserName(absl::string_view name);

}  // namespace xlad::security
