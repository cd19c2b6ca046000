#include "runtime/devices/cpu/thread_team.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/process/cores.h"
#include "runtime/devices/cpu/dnnl_util.h"

namespace xlad::runtime {
namespace {

// How many times a thread checks for the next job before it sleeps. This takes about 30 microseconds.
constexpr int kSpins = 1000;

// A thread takes 1 / kShare of the remaining tiles of a part at a time, so that the last pieces are small.
constexpr int64_t kShare = 4;

}  // namespace

ThreadTeam::ThreadTeam(int threads) : threads_(std::clamp<int>(threads, 1, kJoined)), parts_(new Part[threads_]) {}

ThreadTeam::~ThreadTeam() {
  ending_.store(true);
  epoch_.fetch_add(1);
  WakeHelpers(threads_);
  for (std::thread& helper : helpers_) helper.join();
}

int32_t ThreadTeam::RunOnAll(int64_t tiles, Job job) {
  if (helpers_.empty()) {
    for (int thread = 1; thread < threads_; ++thread) helpers_.emplace_back([this, thread] { Helper(thread); });
  }
  // These can be written without a lock: a helper reads the job and the parts only after it has joined.
  job_ = job;
  code_.store(0, std::memory_order_relaxed);
  for (int64_t thread = 0; thread < threads_; ++thread) {
    parts_[thread].next.store(tiles * thread / threads_, std::memory_order_relaxed);
    parts_[thread].end = tiles * (thread + 1) / threads_;
  }
  const uint64_t number = (state_.load(std::memory_order_relaxed) >> kNumberShift) + 1;
  state_.store(number << kNumberShift | kOpen, std::memory_order_release);
  epoch_.fetch_add(1);
  if (sleeping_.load() > 0) WakeHelpers(tiles - 1);
  WorkOn(0);
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  while ((state_.load(std::memory_order_acquire) & kJoined) != 0) PauseCpu();
  return code_.load(std::memory_order_relaxed);
}

void ThreadTeam::WorkOn(int thread) {
  for (int i = 0; i < threads_; ++i) {
    Part& part = parts_[(thread + i) % threads_];
    while (code_.load(std::memory_order_relaxed) == 0) {
      int64_t begin = part.next.load(std::memory_order_relaxed);
      if (begin >= part.end) break;
      const int64_t end = begin + std::max<int64_t>(1, (part.end - begin) / kShare);
      if (!part.next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      const int32_t code = job_.call(job_.context, thread, begin, end);
      int32_t none = 0;
      if (code != 0) code_.compare_exchange_strong(none, code, std::memory_order_relaxed);
    }
  }
}

void ThreadTeam::Helper(int thread) {
  UseOneThread();
  uint64_t seen = 0;
  while (true) {
    const uint64_t number = NextJob(seen);
    if (number == seen) return;
    seen = number;
    uint64_t state = state_.load(std::memory_order_acquire);
    while ((state & kOpen) != 0) {
      if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
      seen = state >> kNumberShift;
      WorkOn(thread);
      state_.fetch_sub(1, std::memory_order_release);
      break;
    }
  }
}

uint64_t ThreadTeam::NextJob(uint64_t seen) {
  const auto number = [this] { return state_.load(std::memory_order_acquire) >> kNumberShift; };
  while (true) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (number() != seen) return number();
      if (ending_.load(std::memory_order_relaxed)) return seen;
      PauseCpu();
    }
    const uint32_t epoch = epoch_.load();
    sleeping_.fetch_add(1);
    // The owner changes the state, then the epoch, and then reads sleeping_. If this thread still reads the old state
    // here, the owner changes the epoch after `epoch` was read above. If the owner changes it before the futex wait
    // begins, the wait returns at once. Otherwise, the owner then reads a positive sleeping_ and wakes this thread.
    if (number() == seen && !ending_.load()) {
      syscall(SYS_futex, &epoch_, FUTEX_WAIT_PRIVATE, epoch, nullptr, nullptr, 0);
    }
    sleeping_.fetch_sub(1);
  }
}

void ThreadTeam::WakeHelpers(int64_t count) {
  const int most = std::min<int64_t>(count, threads_);
  syscall(SYS_futex, &epoch_, FUTEX_WAKE_PRIVATE, most, nullptr, nullptr, 0);
}

}  // namespace xlad::runtime
