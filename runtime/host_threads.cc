#include "runtime/host_threads.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/log.h"

namespace xlad::runtime {
namespace {

constexpr int kMaxThreads = 65535;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The smallest quota of the process's control group (version 2) and the groups around it; 0 if there is none.
int Quota() {
  const std::string membership = Contents("/proc/self/cgroup");
  int quota = 0;
  for (absl::string_view line : absl::StrSplit(membership, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::")) continue;
    for (std::string group(line);; group.resize(group.rfind('/'))) {
      const int here = QuotaOf(Contents("/sys/fs/cgroup" + group + "/cpu.max"));
      if (here > 0) quota = quota == 0 ? here : std::min(quota, here);
      if (group.find('/') == std::string::npos) break;
    }
  }
  return quota;
}

int AffinityCount() {
  // The mask may be larger than cpu_set_t on machines with many cores.
  for (size_t cpus = 1024; cpus <= 65536; cpus *= 4) {
    cpu_set_t* const set = CPU_ALLOC(cpus);
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return 1;
}

int Limit() {
  const char* const text = std::getenv(kThreadsVariable);
  if (text == nullptr || *text == '\0') return kMaxThreads;
  int limit = 0;
  if (absl::SimpleAtoi(text, &limit) && limit >= 1 && limit <= kMaxThreads) return limit;
  LogWarn("the value of XLAD_THREADS is ignored",
          {{"found", text}, {"expected", absl::StrCat("a number from 1 to ", kMaxThreads)}});
  return kMaxThreads;
}

}  // namespace

int QuotaOf(absl::string_view cpu_max) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::StripAsciiWhitespace(cpu_max), ' ', absl::SkipEmpty());
  int64_t quota_us = 0, period_us = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &quota_us) || !absl::SimpleAtoi(words[1], &period_us)) return 0;
  if (quota_us <= 0 || period_us <= 0) return 0;
  return static_cast<int>(std::min<int64_t>((quota_us - 1) / period_us + 1, kMaxThreads));
}

int HostThreads() {
  static const int threads = [] {
    const int quota = Quota();
    const int cores = quota > 0 ? std::min(AffinityCount(), quota) : AffinityCount();
    return std::max(1, std::min(cores, Limit()));
  }();
  return threads;
}

int ThreadsOfEach(int host_threads, int devices) { return std::max(1, host_threads / std::max(1, devices)); }

}  // namespace xlad::runtime
