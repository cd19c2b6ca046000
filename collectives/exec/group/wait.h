// How a rank of a process group waits for another one: it spins if every rank has a core of its own and otherwise
// yields to other processes, and it sleeps after about a millisecond. A rank that sleeps checks regularly whether its
// peers are alive and run the same operation.
#pragma once

#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "collectives/exec/group/control.h"

namespace xlad::collectives {

inline void PauseCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Threads: used by the thread of its rank.
class GroupWaiter {
 public:
  // `control` must outlive the waiter. `exclusive`: every rank has a core.
  GroupWaiter(ControlFile* control, int rank, bool exclusive);
  ~GroupWaiter();
  GroupWaiter(const GroupWaiter&) = delete;
  GroupWaiter& operator=(const GroupWaiter&) = delete;

  // Call once, after all ranks have made their waiters and before the first wait. WatchPeers also opens handles by
  // which the ends of the peers' processes are noticed; with Start alone, `check` must end the waits for them.
  void Start() { needs_fence_ = control_->head().needs_fence.load() != 0; }
  absl::Status WatchPeers();

  // Waits until `ready()`. `peer` and `step` describe the wait. `check` is called regularly, and ends the wait if it
  // returns an error. Unavailable, naming the rank, host and process, if a peer has died or left.
  template <typename Ready>
  absl::Status Until(int peer, int step, const Ready& ready, absl::FunctionRef<absl::Status()> check) {
    for (int spin = 0; spin < first_spins_; ++spin) {
      if (ready()) return absl::OkStatus();
      PauseCpu();
    }
    return ready() ? absl::OkStatus() : WaitLong(peer, step, ready, check);
  }

  // Call after a store for which others may wait.
  void Wake() {
    if (needs_fence_) std::atomic_thread_fence(std::memory_order_seq_cst);
    if (control_->head().sleepers.load(std::memory_order_relaxed) != 0) WakeSleepers();
  }

  // An error that names the first peer that has died or left before it finished the current operation; otherwise OK.
  absl::Status CheckPeers();
  // Whether the process of a rank runs and the rank has not left in order.
  bool IsAlive(int rank) const;
  // "rank 3 (host node7, pid 4711)"
  std::string Describe(int rank) const;

 private:
  absl::Status WaitLong(int peer, int step, absl::FunctionRef<bool()> ready, absl::FunctionRef<absl::Status()> check);
  absl::Status Sleep(absl::FunctionRef<bool()> ready, absl::FunctionRef<absl::Status()> check);
  void WakeSleepers();
  absl::Status Died(int rank) const;
  absl::Status Stopped(int rank) const;

  ControlFile* const control_;
  const int rank_;
  const bool exclusive_;
  const int first_spins_;
  bool needs_fence_ = false;
  bool has_short_slices_ = false;     // The thread has asked for them.
  int waits_on_same_core_ = 0;        // The number of successive long waits for a rank on the same core.
  std::vector<int> process_handles_;  // By rank; -1 for the own rank.
};

}  // namespace xlad::collectives
