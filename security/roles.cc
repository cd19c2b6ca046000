#include "security/roles.h"

#include <array>

#include "absl/strings/ascii.h"

namespace xlad::security {
namespace {

constexpr Access kNo = Access::kDenied;
constexpr Access kOwn = Access::kOwn;
constexpr Access kAll = Access::kAll;

constexpr std::array<std::pair<Role, absl::string_view>, 5> kNames = {{{Role::kReader, "reader"},
                                                                       {Role::kSubmitter, "submitter"},
                                                                       {Role::kWorker, "worker"},
                                                                       {Role::kOperator, "operator"},
                                                                       {Role::kOwner, "owner"}}};

}  // namespace

absl::string_view RoleName(Role role) {
  for (const auto& [known, name] : kNames) {
    if (known == role) return name;
  }
  return "unknown";
}

std::optional<Role> ParseRole(absl::string_view name) {
  for (const auto& [role, known] : kNames) {
    if (known == name && role != Role::kOwner) return role;
  }
  return std::nullopt;
}

const std::vector<CallRule>& CallRules() {
  static const auto* const rules = new std::vector<CallRule>{
      // call           reader submitter worker operator
      {"SubmitJob", kNo, kAll, kNo, kAll},
      {"ListJobs", kAll, kOwn, kNo, kAll},
      {"GetJob", kAll, kOwn, kNo, kAll},
      {"WatchJob", kAll, kOwn, kNo, kAll},
      {"JobLog", kAll, kOwn, kNo, kAll},
      {"WhyJob", kAll, kOwn, kNo, kAll},
      {"GetTrace", kAll, kOwn, kNo, kAll},
      {"CancelJob", kNo, kOwn, kNo, kAll},
      {"ResizeJob", kNo, kOwn, kNo, kAll},
      {"ListWorkers", kAll, kAll, kNo, kAll},
      {"GetStatus", kAll, kAll, kNo, kAll},
      {"DrainWorker", kNo, kNo, kNo, kAll},
      {"UndrainWorker", kNo, kNo, kNo, kAll},
      {"Backup", kNo, kNo, kNo, kAll},
      // Blobs are named by the SHA-256 of their contents. A caller who knows the name of a blob has either its contents
      // or a job of its own that refers to the blob.
      {"HasBlobs", kNo, kAll, kAll, kAll},
      {"PutBlob", kNo, kAll, kAll, kAll},
      {"GetBlob", kNo, kAll, kAll, kAll},
      {"GetBlobRange", kNo, kAll, kAll, kAll},
      {"PutBatch", kNo, kOwn, kNo, kAll},
      {"GetBatchRange", kNo, kNo, kAll, kAll},
      {"OpenSession", kNo, kAll, kNo, kAll},
      {"HoldSession", kNo, kOwn, kNo, kAll},
      {"LocateSession", kNo, kOwn, kNo, kAll},
      {"LoadProgram", kNo, kOwn, kNo, kAll},
      {"CloseSession", kNo, kOwn, kNo, kAll},
      {"AddProgram", kNo, kOwn, kNo, kAll},
      {"CallProgram", kNo, kOwn, kNo, kAll},
      {"FreeArrays", kNo, kOwn, kNo, kAll},
      {"PutArray", kNo, kOwn, kNo, kAll},
      {"GetArray", kNo, kOwn, kNo, kAll},
      {"Attach", kNo, kNo, kAll, kNo},
      {"grpc.health.v1.Health/Watch", kAll, kAll, kAll, kAll},
      {"grpc.reflection.v1.ServerReflection/ServerReflectionInfo", kAll, kAll, kNo, kAll},
      {"grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kAll, kAll, kNo, kAll},
  };
  return *rules;
}

Access AccessTo(absl::string_view call, Role role) {
  for (const CallRule& rule : CallRules()) {
    if (call != rule.call) continue;
    switch (role) {
      case Role::kReader:
        return rule.reader;
      case Role::kSubmitter:
        return rule.submitter;
      case Role::kWorker:
        return rule.worker;
      case Role::kOperator:
        return rule.op;
      case Role::kOwner:
        return Access::kAll;
    }
  }
  return Access::kDenied;
}

bool IsUserName(absl::string_view name) {
  if (name.empty() || name.size() > 32 || !absl::ascii_islower(name[0])) return false;
  for (const char c : name) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '-' && c != '_' && c != '.') return false;
  }
  return true;
}

}  // namespace xlad::security
