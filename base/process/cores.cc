#include "base/process/cores.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/process/cgroup.h"

namespace xlad {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// The cores of the affinity mask, or of the machine if the system does not report the mask.
int CountCores() {
  int cores = 0;
  for (const uint64_t word : AffinityMask()) cores += std::popcount(word);
  return cores > 0 ? cores : static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::vector<uint64_t> AffinityMask() {
  // The mask may be larger than cpu_set_t on machines with many cores.
  for (size_t cores = 1024; cores <= 65536; cores *= 4) {
    cpu_set_t* const set = CPU_ALLOC(cores);
    const size_t bytes = CPU_ALLOC_SIZE(cores);
    std::vector<uint64_t> mask;
    if (sched_getaffinity(0, bytes, set) == 0) {
      mask.resize(cores / 64);
      for (size_t core = 0; core < cores; ++core) {
        if (CPU_ISSET_S(core, bytes, set)) mask[core / 64] |= uint64_t{1} << (core % 64);
      }
    }
    CPU_FREE(set);
    if (!mask.empty()) return mask;
  }
  return {};
}

double CpuQuota() {
  static const double quota = [] {
    double least = kUnlimited;
    ForEachCgroupFile("cpu.max", [&](absl::string_view text) { least = std::min(least, CpuQuotaOf(text)); });
    return least;
  }();
  return quota;
}

int UsableCores() { return UsableCoresOf(CountCores(), CpuQuota()); }
int UsableThreads() { return UsableThreadsOf(CountCores(), CpuQuota()); }

int UsableCoresOf(int cores, double quota) {
  return std::max(1, static_cast<int>(std::min<double>(cores, std::floor(quota))));
}
int UsableThreadsOf(int cores, double quota) {
  return std::max(1, static_cast<int>(std::min<double>(cores, std::ceil(quota))));
}

double CpuQuotaOf(absl::string_view cpu_max) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::StripAsciiWhitespace(cpu_max), ' ', absl::SkipEmpty());
  int64_t quota_us = 0, period_us = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &quota_us) || !absl::SimpleAtoi(words[1], &period_us) ||
      quota_us <= 0 || period_us <= 0) {
    return kUnlimited;
  }
  return static_cast<double>(quota_us) / static_cast<double>(period_us);
}

}  // namespace xlad
