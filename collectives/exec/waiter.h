// Waiting of one device thread for what others do: a short spin where cores are plenty, then sleep.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <functional>

#include "collectives/exec/abort.h"

namespace xlad::collectives {

// What sleepers and those who wake them look at. Zeros to begin with. May lie in memory shared between processes.
struct WaiterWords {
  std::atomic<uint32_t> epoch = 0;
  std::atomic<uint32_t> sleeping = 0;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Wakes whoever sleeps on the words. Whoever makes a condition true stores it before.
inline void NotifyWords(WaiterWords* words, bool shared) {
  words->epoch.fetch_add(1);
  if (words->sleeping.load() == 0) return;
  syscall(SYS_futex, &words->epoch, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// One thread waits, any threads notify.
class Waiter {
 public:
  // `spins`: looks at the condition before it sleeps; 1 where threads outnumber cores. `shared`: words that other
  // processes notify too; they must outlive the waiter.
  explicit Waiter(int spins = 1, WaiterWords* shared = nullptr)
      : spins_(spins), shared_(shared != nullptr), words_(shared != nullptr ? shared : &own_) {}

  // Called by the waiting thread before each look: moves in what others have left in shared memory. Before any wait.
  void SetPump(std::function<void()> pump) { pump_ = std::move(pump); }

  // Until `ready()` or the signal is raised; false in the second case.
  template <typename Ready>
  bool Wait(const AbortSignal& abort, const Ready& ready) {
    const auto look = [&] {
      if (pump_ != nullptr) pump_();
      return ready();
    };
    for (int spin = 0; spin < spins_; ++spin) {
      if (look()) return true;
    }
    while (true) {
      const uint32_t seen = words_->epoch.load();
      if (look()) return true;
      if (abort.raised()) return false;
      words_->sleeping.store(1);
      // Whoever notified between the look and here has moved the epoch on, and the sleep ends at once.
      if (!look() && !abort.raised()) Sleep(seen);
      words_->sleeping.store(0);
    }
  }

  // As Wait, but goes on waiting when the signal is raised: for what is sure to come soon.
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

 private:
  void Sleep(uint32_t seen) {
    syscall(SYS_futex, &words_->epoch, shared_ ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  }

  const int spins_;
  const bool shared_;
  WaiterWords own_;
  WaiterWords* const words_;
  std::function<void()> pump_;
};

}  // namespace xlad::collectives
