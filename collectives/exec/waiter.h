// Lets the thread of a device wait for a condition: spins briefly if there are enough cores, then sleeps on a futex.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "collectives/exec/abort.h"
#include "collectives/exec/short_slices.h"

namespace xlad::collectives {

// The state shared by a waiting thread and the threads that notify it. Initially zero. May be in memory that processes
// share.
struct WaiterWords {
  std::atomic<uint32_t> epoch = 0;
  std::atomic<uint32_t> sleeping = 0;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Wakes the thread that sleeps on the words. The caller must make the condition true before this call.
inline void NotifyWords(WaiterWords* words, bool shared) {
  words->epoch.fetch_add(1);
  if (words->sleeping.load() == 0) return;
  syscall(SYS_futex, &words->epoch, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// What a pump has done. kReported: a library says that it has made progress, but no operation has ended; some libraries
// always say so. kMade: data has been received, or an operation has ended.
enum class Progress { kNone, kReported, kMade };

// One thread waits, and any thread may notify it.
class Waiter {
 public:
  // `spins` is how often the condition is tested before sleeping; use 1 if there are more threads than cores. `shared`
  // points to words that other processes notify too, which must outlive the waiter.
  explicit Waiter(int spins = 1, WaiterWords* shared = nullptr)
      : spins_(spins), shared_(shared != nullptr), words_(shared != nullptr ? shared : &own_) {}

  // Sets a function that the waiting thread calls before each test, to receive messages. If `polls` is true, messages
  // may arrive without a notification, so the waiter does not sleep longer than kMaxSleepUs. Must be called before any
  // wait.
  void SetPump(std::function<void()> pump, bool polls) {
    pump_ = std::move(pump);
    polls_ = polls;
  }

  // Called by the pump. After progress, a waiter that polls does not sleep before it calls the pump again: more parts
  // usually follow, and the peer waits for this thread if the buffers between them are full.
  void NoteProgress(Progress progress) { progress_ = std::max(progress_, progress); }

  // Waits until `ready()` returns true or the signal is raised. Returns whether `ready()` returned true.
  template <typename Ready>
  bool Wait(const AbortSignal& abort, const Ready& ready) {
    if (polls_) return Poll(abort, ready);
    const auto test = [&] {
      if (pump_ != nullptr) pump_();
      return ready();
    };
    for (int spin = 0; spin < spins_; ++spin) {
      if (test()) return true;
      if (abort.raised()) return false;
    }
    while (true) {
      const uint32_t seen = words_->epoch.load();
      if (test()) return true;
      if (abort.raised()) return false;
      words_->sleeping.store(1);
      // If there was a notification since `seen` was read, the epoch has changed and the sleep returns at once.
      if (!test() && !abort.raised()) Sleep(seen);
      words_->sleeping.store(0);
    }
  }

  // Like Wait, but ignores the signal and does not call the pump. Only for conditions that are certain to become true
  // soon, with a notification.
  template <typename Ready>
  void WaitRegardless(const Ready& ready) {
    while (true) {
      const uint32_t seen = words_->epoch.load();
      if (ready()) return;
      words_->sleeping.store(1);
      if (!ready()) Sleep(seen);
      words_->sleeping.store(0);
    }
  }

  void Notify() { NotifyWords(words_, shared_); }

  // How often the waiting thread has slept.
  int64_t sleeps() const { return sleeps_; }

 private:
  // The form of Wait for a waiter that polls, which sleeps only if the pump has made no progress for some time.
  // Progress that is only reported counts for at most kMaxReportedNs after the last progress that was made.
  template <typename Ready>
  bool Poll(const AbortSignal& abort, const Ready& ready) {
    // A yield postpones the thread's deadline in the scheduler by one time slice. With short slices, the thread runs
    // again sooner.
    if (!std::exchange(has_short_slices_, true)) AskForShortSlices();
    int64_t made_ns = RealClock().NowNs(), end_ns = made_ns + kMaxYieldNs, sleep_us = kMinSleepUs;
    int yields = 0;
    while (true) {
      const uint32_t seen = words_->epoch.load();
      progress_ = Progress::kNone;
      pump_();
      if (ready()) return true;
      if (abort.raised()) return false;
      const int64_t now_ns = RealClock().NowNs();
      if (progress_ == Progress::kMade) made_ns = now_ns;
      if (progress_ != Progress::kNone && now_ns - made_ns < kMaxReportedNs) {
        end_ns = now_ns + kMaxYieldNs;
        sleep_us = kMinSleepUs;
        yields = 0;
        // If there are more threads than cores, the peer that sends needs this core.
        if (progress_ == Progress::kReported) sched_yield();
      } else if (yields < std::max(spins_, kYields) && now_ns < end_ns) {
        // On a busy machine, one yield may last as long as the time slices of all other threads.
        ++yields;
        sched_yield();
      } else {
        words_->sleeping.store(1);
        if (!ready() && !abort.raised()) Sleep(seen, sleep_us);
        words_->sleeping.store(0);
        // After a long wait, a longer sleep adds relatively little latency and frees the core for other threads.
        sleep_us = std::min(sleep_us + sleep_us / 4, kMaxSleepUs);
      }
    }
  }

  // A waiter that polls yields at most max(`spins`, kYields) times, and for at most about kMaxYieldNs, before it
  // sleeps.
  static constexpr int kYields = 1000;
  static constexpr int64_t kMaxYieldNs = 1'000'000;
  static constexpr int64_t kMaxReportedNs = 1'000'000'000;
  static constexpr int64_t kMinSleepUs = 10, kMaxSleepUs = 1000;

  // If `sleep_us` is 0, sleeps until a notification.
  void Sleep(uint32_t seen, int64_t sleep_us = 0) {
    ++sleeps_;
    const timespec timeout{0, static_cast<long>(sleep_us * 1000)};
    syscall(SYS_futex, &words_->epoch, shared_ ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen,
            sleep_us > 0 ? &timeout : nullptr, nullptr, 0);
  }

  const int spins_;
  const bool shared_;
  WaiterWords own_;
  WaiterWords* const words_;
  std::function<void()> pump_;
  bool polls_ = false;
  Progress progress_ = Progress::kNone;  // The most progress that the pump has noted.
  int64_t sleeps_ = 0;
  bool has_short_slices_ = false;  // The thread has asked for short time slices.
};

}  // namespace xlad::collectives
