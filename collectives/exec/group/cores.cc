#include "collectives/exec/group/cores.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"

namespace xlad::collectives {

namespace {

// A matching of processes and cores in which each process has at most one core, and each core at most one process.
class CoreMatching {
 public:
  explicit CoreMatching(const std::vector<std::vector<uint64_t>>& masks) : masks_(masks) {
    size_t words = 0;
    for (const std::vector<uint64_t>& mask : masks) words = std::max(words, mask.size());
    process_of_.resize(words * 64, -1);
  }

  // Adds a process, and may move other processes to other cores. Returns false if the processes cannot all have a core.
  bool Add(int process) {
    tried_.assign(process_of_.size(), false);
    return FindCore(process);
  }

 private:
  // Finds an augmenting path that begins at `process`, and applies it. The path alternates between processes and cores,
  // and ends at a core that no process has.
  bool FindCore(int process) {
    const std::vector<uint64_t>& mask = masks_[process];
    for (size_t core = 0; core < mask.size() * 64; ++core) {
      if ((mask[core / 64] >> (core % 64) & 1) == 0 || tried_[core]) continue;
      tried_[core] = true;
      if (process_of_[core] >= 0 && !FindCore(process_of_[core])) continue;
      process_of_[core] = process;
      return true;
    }
    return false;
  }

  const std::vector<std::vector<uint64_t>>& masks_;
  std::vector<int> process_of_;  // By core; -1 if no process has the core.
  std::vector<bool> tried_;      // The cores on the paths that were tried for the process that is being added.
};

int64_t ReadLastLevelCacheBytes() {
  int64_t bytes = 0;
  for (int index = 0; index < 8; ++index) {
    const absl::StatusOr<std::string> text =
        RealFileSystem().Read(absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", index, "/size"));
    int64_t kib = 0;
    if (text.ok() && absl::SimpleAtoi(absl::StripSuffix(absl::StripSuffix(*text, "\n"), "K"), &kib)) {
      bytes = std::max(bytes, kib << 10);
    }
  }
  return bytes > 0 ? bytes : int64_t{32} << 20;
}

}  // namespace

bool EachHasACore(const std::vector<std::vector<uint64_t>>& masks, double quota) {
  const int processes = static_cast<int>(masks.size());
  if (quota < processes) return false;
  CoreMatching matching(masks);
  for (int process = 0; process < processes; ++process) {
    if (!matching.Add(process)) return false;
  }
  return true;
}

int64_t LastLevelCacheBytes() {
  static const int64_t bytes = ReadLastLevelCacheBytes();
  return bytes;
}

}  // namespace xlad::collectives
