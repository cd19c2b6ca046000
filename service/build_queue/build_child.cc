#include "service/build_queue/build_child.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

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

// The input of the child (build/build.h) without its request. Without a folder of objects, or if it cannot be made, the
// child compiles everything.
std::string InputFor(const storage::EntryFolder* objects) {
  const std::string nul(1, '\0');
  if (objects == nullptr) return nul + nul;
  const absl::Status made = RealFileSystem().MakeDirectories(objects->options().path);
  if (made.ok()) return objects->options().path + nul + objects->options().version + nul;
  LogWarn("the cache of kernels cannot be used", {{"error", std::string(made.message())}});
  return nul + nul;
}

// Moves the objects of the response to the folder.
void KeepObjects(const storage::EntryFolder& folder, BuildResponse* response) {
  folder.Touch(std::vector<std::string>(response->reused_objects().begin(), response->reused_objects().end()));
  std::vector<storage::FolderEntry> entries;
  for (BuildResponse::Object& object : *response->mutable_new_objects()) {
    entries.push_back({object.key(), std::move(*object.mutable_code())});
  }
  const absl::Status written = folder.Write(entries);
  if (!written.ok()) {
    LogWarn("kernels could not be stored in the cache", {{"error", std::string(written.message())}});
  }
}

}  // namespace

absl::StatusOr<BuildResponse> BuildInChild(BuildPool& pool, const BuildRequest& request, const ChildLimits& limits,
                                           std::optional<std::string>* not_isolated,
                                           const storage::EntryFolder* objects) {
  ChildLimits all_limits = limits;
  if (all_limits.cpu_seconds == 0) all_limits.cpu_seconds = kMaxBuildCpuSeconds;
  std::string input = InputFor(objects);
  if (!request.AppendToString(&input)) {
    return absl::ResourceExhaustedError(absl::StrCat("found a build request of ", request.ByteSizeLong(),
                                                     " bytes, expected at most 2 GiB, the most that a message can "
                                                     "hold; make large constants parameters of the program"));
  }
  XLAD_ASSIGN_OR_RETURN(ChildResult child, pool.Run(input, all_limits));
  std::string().swap(input);
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
  std::string().swap(child.output);
  if (not_isolated != nullptr) *not_isolated = response.not_isolated();
  response.clear_not_isolated();  // The response may be stored, but this field describes only the present build.
  if (objects != nullptr) KeepObjects(*objects, &response);
  response.clear_new_objects();
  if (!response.error().empty()) {
    // Unavailable would mean that another build of the same program may succeed.
    const auto code = static_cast<absl::StatusCode>(response.error_code());
    const bool is_of_program = code != absl::StatusCode::kOk && code != absl::StatusCode::kUnavailable;
    return absl::Status(is_of_program ? code : absl::StatusCode::kInternal, response.error());
  }
  return response;
}

int64_t DefaultBuildMemoryBytes() {
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return 0;
#else
  const int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::max(physical / 2, int64_t{2} << 30);
#endif
}

}  // namespace xlad::service
