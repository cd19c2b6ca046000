// Aborts a task whose collectives make no progress.
#pragma once

#include <vector>

#include "collectives/exec/abort.h"
#include "collectives/exec/recorder.h"

namespace xlad::collectives {

// Off unless someone polls it. A stopped or overloaded peer looks the same as a slow one: limits are for minutes.
class ProgressWatchdog {
 public:
  ProgressWatchdog(const Clock* clock, int64_t limit_ms, std::vector<const Recorder*> recorders, AbortSignal* abort)
      : clock_(clock), limit_ms_(limit_ms), recorders_(std::move(recorders)), abort_(abort) {}

  // Raises DeadlineExceeded, with what every device here is doing, where one has been in one operation of a schedule
  // for longer than the limit. True where it did.
  bool Poll();

 private:
  const Clock* const clock_;
  const int64_t limit_ms_;
  const std::vector<const Recorder*> recorders_;
  AbortSignal* const abort_;
};

}  // namespace xlad::collectives
