// Waiting of one device thread for what other threads do: a short spin where cores are plenty, then sleep.
#pragma once

#include <atomic>
#include <cstdint>

#include "collectives/exec/abort.h"

namespace xlad::collectives {

// One thread waits, any threads notify. Whoever makes a condition true stores it before it calls Notify.
class Waiter {
 public:
  // `spins`: looks at the condition before it sleeps; 1 where threads outnumber cores.
  explicit Waiter(int spins = 1) : spins_(spins) {}

  // Until `ready()` or the signal is raised; false in the second case.
  template <typename Ready>
  bool Wait(const AbortSignal& abort, const Ready& ready) {
    for (int spin = 0; spin < spins_; ++spin) {
      if (ready()) return true;
    }
    while (true) {
      const uint32_t seen = epoch_.load();
      if (ready()) return true;
      if (abort.raised()) return false;
      sleeping_.store(true);
      // Whoever notified between the look and here has moved the epoch on, and wait returns at once.
      if (!ready() && !abort.raised()) epoch_.wait(seen);
      sleeping_.store(false);
    }
  }

  // As Wait, but goes on waiting when the signal is raised: for what is sure to come soon.
  template <typename Ready>
  void WaitRegardless(const Ready& ready) {
    while (true) {
      const uint32_t seen = epoch_.load();
      if (ready()) return;
      sleeping_.store(true);
      if (!ready()) epoch_.wait(seen);
      sleeping_.store(false);
    }
  }

  void Notify() {
    epoch_.fetch_add(1);
    if (sleeping_.load()) epoch_.notify_all();
  }

 private:
  const int spins_;
  std::atomic<uint32_t> epoch_ = 0;
  std::atomic<bool> sleeping_ = false;
};

}  // namespace xlad::collectives
