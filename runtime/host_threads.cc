#include "runtime/host_threads.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/process/cores.h"

namespace xlad::runtime {
namespace {

constexpr int kMaxThreads = 65535;

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

int HostThreads() {
  static const int threads = std::min(UsableThreads(), Limit());
  return threads;
}

int ThreadsOfEach(int host_threads, int devices) { return std::max(1, host_threads / std::max(1, devices)); }

}  // namespace xlad::runtime
