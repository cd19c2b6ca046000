// Aborts a task whose collectives make no progress.
#pragma once

#include <vector>

#include "collectives/exec/abort.h"
#include "collectives/exec/recorder.h"

namespace xlad::collectives {

// Detects a lack of progress only when it is polled. A stopped peer cannot be distinguished from a slow one, so the
// limit should be minutes. Thread-safe.
class ProgressWatchdog {
 public:
  ProgressWatchdog(const Clock* clock, int64_t limit_ms, std::vector<const Recorder*> recorders, AbortSignal* abort)
      : clock_(clock), limit_ms_(limit_ms), recorders_(std::move(recorders)), abort_(abort) {}

  // Raises DeadlineExceeded if a device has been in one operation of a schedule, or in one collective of a library, for
  // longer than the limit. The message names the current operation of every device that runs a collective. Returns
  // whether this call raised the signal.
  bool Poll();

 private:
  const Clock* const clock_;
  const int64_t limit_ms_;
  const std::vector<const Recorder*> recorders_;
  AbortSignal* const abort_;
};

}  // namespace xlad::collectives
