#include "service/build_child.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace xlad::service {
namespace {

constexpr int64_t kMaxBuildCpuSeconds = 3600;

// Says how the child ended, and quotes the end of its standard error.
std::string Ending(const ChildResult& child) {
  constexpr size_t kMaxBytes = 2000;
  const std::string how = child.signal != 0
                              ? absl::StrCat("died of signal ", child.signal, " (", strsignal(child.signal), ")")
                              : absl::StrCat("ended with exit code ", child.exit_code);
  absl::string_view errors = absl::StripAsciiWhitespace(child.errors);
  if (errors.size() > kMaxBytes) errors.remove_prefix(errors.size() - kMaxBytes);
  return errors.empty() ? how : absl::StrCat(how, "; its output ends with: ", errors);
}

bool LacksMemory(const ChildResult& child) {
  return absl::StrContains(child.errors, "bad_alloc") || absl::StrContains(child.errors, "ut of memory");
}

}  // namespace

absl::StatusOr<BuildResponse> BuildInChild(const std::string& program_path, const BuildRequest& request,
                                           const ChildLimits& limits, std::optional<std::string>* not_isolated) {
  ChildLimits all_limits = limits;
  if (all_limits.cpu_seconds == 0) all_limits.cpu_seconds = kMaxBuildCpuSeconds;
  std::string input;
  if (!request.SerializeToString(&input)) {
    return absl::ResourceExhaustedError("the build request is larger than 2 GiB, which is the most that it may be");
  }
  XLAD_ASSIGN_OR_RETURN(const ChildResult child, RunChild({program_path, "__build"}, input, all_limits));
  if (child.exit_code != 0 || child.signal != 0) {
    if (all_limits.memory_bytes > 0 && LacksMemory(child)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the build needs more memory than the ", all_limits.memory_bytes >> 20,
                       " MiB that a build may use; the coordinator's flag --build-memory sets this limit"));
    }
    return absl::InternalError(absl::StrCat("the build process ", Ending(child)));
  }
  BuildResponse response;
  if (!response.ParseFromString(child.output)) {
    return absl::InternalError(absl::StrCat("the build process answered ", child.output.size(),
                                            " bytes that cannot be parsed as a BuildResponse"));
  }
  if (not_isolated != nullptr) *not_isolated = response.not_isolated();
  response.clear_not_isolated();  // The response may be stored, but this concerns only the build on this machine.
  if (!response.error().empty()) {
    return absl::Status(static_cast<absl::StatusCode>(response.error_code()), response.error());
  }
  return response;
}

int64_t DefaultBuildMemoryBytes() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0;
#else
  const int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::max(physical / 2, int64_t{2} << 30);
#endif
}

}  // namespace xlad::service
