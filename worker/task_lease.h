// How far the coordinator allows a task to run.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace xlad::worker {

// A lease that is shorter than an earlier one is a pause. The coordinator repeats it while the task is too far ahead of
// its peers (service/attempts/pace.h). A lease that is not shorter ends the pause. If no such lease arrives, the pause
// ends kPauseNs after the last shorter lease, because the coordinator may have ended. The longest lease then applies.
class TaskLease {
 public:
  static constexpr int64_t kPauseNs = 3000 * kNsPerMs;

  void Take(int64_t until_step, int64_t now_ns) {
    const bool is_pause = until_step < longest_;
    (is_pause ? shorter_ : longest_) = until_step;
    pause_end_ns_ = is_pause ? now_ns + kPauseNs : 0;
  }
  // The task may begin the steps before this one. -1 if there is no lease yet.
  int64_t At(int64_t now_ns) const { return now_ns < pause_end_ns_ ? shorter_ : longest_; }

 private:
  int64_t longest_ = -1;
  int64_t shorter_ = -1;
  int64_t pause_end_ns_ = 0;
};

}  // namespace xlad::worker
