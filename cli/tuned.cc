#include "cli/tuned.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "compiler/kernel/schedule_tables.h"
#include "runtime/devices/cpu/host_target.h"

namespace xlad::cli {

std::string TunedPath(const std::string& cache_folder) {
  if (cache_folder.empty()) return "";
  const Target target = runtime::HostTarget("cpu");
  const std::string features = Sha256Hex(target.features()).substr(0, 8);
  return JoinPath(cache_folder, absl::StrCat("schedules-", target.cpu(), "-", features, ".txt"));
}

std::string ReadTuned(const std::string& cache_folder) {
  const std::string path = TunedPath(cache_folder);
  if (path.empty()) return "";
  auto text = RealFileSystem().Read(path);
  if (absl::IsNotFound(text.status())) return "";
  const absl::Status read = text.ok() ? compiler::ScheduleTable::Parse(*text).status() : text.status();
  if (read.ok()) return *std::move(text);
  std::fprintf(stderr, "xlad: warning: %s is not used: %s\n", path.c_str(), std::string(read.message()).c_str());
  return "";
}

}  // namespace xlad::cli
