#include "collectives/exec/group/cores.h"

#include <sched.h>

#include <bit>
#include <climits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"

namespace xlad::collectives {

std::vector<uint64_t> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<uint64_t> words(CPU_SETSIZE / 64);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return std::vector<uint64_t>(words.size(), ~uint64_t{0});
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) words[core / 64] |= uint64_t{1} << (core % 64);
  }
  return words;
}

int QuotaCores(const std::string& cpu_max) {
  const std::vector<std::string> parts = absl::StrSplit(absl::StripSuffix(cpu_max, "\n"), ' ');
  int64_t quota = 0, period = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &quota) || !absl::SimpleAtoi(parts[1], &period) || period <= 0) {
    return INT_MAX;
  }
  return static_cast<int>(std::max<int64_t>(1, quota / period));
}

int QuotaCores() {
  const absl::StatusOr<std::string> group = RealFileSystem().Read("/proc/self/cgroup");
  if (!group.ok()) return INT_MAX;
  int cores = INT_MAX;
  for (const absl::string_view line : absl::StrSplit(*group, '\n')) {
    absl::string_view path = line;
    if (!absl::ConsumePrefix(&path, "0::")) continue;
    // A limit of any enclosing group counts.
    for (std::string at(path); !at.empty(); at = at.substr(0, at.rfind('/'))) {
      const absl::StatusOr<std::string> text = RealFileSystem().Read(absl::StrCat("/sys/fs/cgroup", at, "/cpu.max"));
      if (text.ok()) cores = std::min(cores, QuotaCores(*text));
    }
  }
  return cores;
}

bool EachHasACore(const std::vector<std::vector<uint64_t>>& masks, int quota_cores) {
  const int ranks = static_cast<int>(masks.size());
  if (quota_cores < ranks) return false;
  std::vector<uint64_t> all;
  for (const std::vector<uint64_t>& mask : masks) {
    all.resize(std::max(all.size(), mask.size()));
    for (size_t i = 0; i < mask.size(); ++i) all[i] |= mask[i];
  }
  int cores = 0;
  for (const uint64_t word : all) cores += std::popcount(word);
  return cores >= ranks;
}

int64_t LastLevelCacheBytes() {
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

}  // namespace xlad::collectives
