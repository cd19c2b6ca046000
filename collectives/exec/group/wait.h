// How a rank of a process group waits for another rank. If every rank has a core of its own, a waiting rank spins, and
// sleeps after about 0.1 ms. Otherwise it yields to other processes, and sleeps after about 1 ms. Before its first
// yields, it spins for about 0.5 us if only ranks on other cores are late. A sleeping rank wakes every 2 to 20 ms to
// check whether its peers are alive and run the same operation.
#pragma once

#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/process/cores.h"
#include "collectives/exec/group/control.h"

namespace xlad::collectives {

// Whether all ranks whose last long wait began on this core have entered the operation of `rank`.
bool OnlyOtherCoresAreLate(const ControlFile& control, int rank, int core);

// Waits of one rank. Only the thread of the rank may use a waiter.
class GroupWaiter {
 public:
  // `control` must outlive the waiter. `exclusive` is true if every rank has a core of its own.
  GroupWaiter(ControlFile* control, int rank, bool exclusive);
  ~GroupWaiter();
  GroupWaiter(const GroupWaiter&) = delete;
  GroupWaiter& operator=(const GroupWaiter&) = delete;

  // Call one of these once, after all ranks have made their waiters and before the first wait. WatchPeers also opens
  // handles that report the end of the peers' processes. With Start alone, `check` must end waits for peers that have
  // died.
  void Start() { needs_fence_ = control_->head().needs_fence.load() != 0; }
  absl::Status WatchPeers();

  // Waits until `ready()` is true. `peer` and `step` describe the wait to observers. When the rank begins to sleep, and
  // every 2 to 20 ms after that, `check` and CheckPeers are called. An error of either ends the wait and is returned.
  template <typename Ready>
  absl::Status Until(int peer, int step, const Ready& ready, absl::FunctionRef<absl::Status()> check) {
    for (int spin = 0; spin < first_spins_; ++spin) {
      if (ready()) return absl::OkStatus();
      PauseCpu();
    }
    return ready() ? absl::OkStatus() : WaitLong(peer, step, ready, check);
  }

  // Must be called after a store that other ranks may wait for.
  void Wake() {
    if (needs_fence_) std::atomic_thread_fence(std::memory_order_seq_cst);
    if (control_->head().sleepers.load(std::memory_order_relaxed) != 0) WakeSleepers();
  }

  // Unavailable, naming the rank, host and process, if a peer has died, left or stopped after an error before it
  // finished the current operation. FailedPrecondition, naming both operations, if the ranks run operations on mapped
  // memory and with messages in different orders, or if a peer has stopped and the ranks ran different operations.
  // Without WatchPeers, always OK.
  absl::Status CheckPeers();
  // The same for one peer, whether or not it has finished the current operation. OK for this rank. WatchPeers must have
  // been called.
  absl::Status CheckPeer(int rank);
  // Returns the error for a peer that runs a different operation than this rank, given the texts of both.
  absl::Status Disagreement(absl::string_view own, int peer, absl::string_view theirs) const;
  // Returns false if the process of a rank has ended, or if the rank has left the group without an error. WatchPeers
  // must have been called.
  bool IsAlive(int rank) const;
  // Returns a text such as "rank 3 (host node7, pid 4711)".
  std::string Describe(int rank) const;

 private:
  absl::Status WaitLong(int peer, int step, absl::FunctionRef<bool()> ready, absl::FunctionRef<absl::Status()> check);
  absl::Status Sleep(absl::FunctionRef<bool()> ready, absl::FunctionRef<absl::Status()> check);
  void WakeSleepers();
  absl::Status Died(int rank) const;
  absl::Status Stopped(int rank) const;
  absl::Status CheckOrder(int rank) const;
  absl::Status CheckPresence(int rank);

  ControlFile* const control_;
  const int rank_;
  const bool exclusive_;
  const int first_spins_;
  bool needs_fence_ = false;
  bool has_short_slices_ = false;     // The thread has asked for short time slices.
  int waits_on_same_core_ = 0;        // The number of successive long waits for a rank on the same core.
  std::vector<int> process_handles_;  // By rank; -1 for this rank.
};

}  // namespace xlad::collectives
