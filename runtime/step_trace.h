// When the steps of the first runs of a program began and ended, for a timeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/exec/recorder.h"

namespace xlad::runtime {

// The steps of one shard; written by its thread.
struct StepTrace {
  struct Span {
    const std::string* place = nullptr;  // "dot.3 (train.py:31)"; belongs to the step program.
    const char* kind = "";               // "kernel", "library", "copy", "collective" or "wait" (for a collective).
    int64_t step = 0;                    // The step of the job.
    int64_t begin_ns = 0, end_ns = 0;
  };
  static constexpr size_t kMaxSpans = 200'000;  // Later ones are dropped.

  const Clock* clock = nullptr;
  std::vector<Span> spans;
};

// What is known about one device.
struct DeviceTimeline {
  int device = 0;
  const StepTrace* steps = nullptr;
  std::vector<collectives::Recorder::Ended> mapped, messages;  // Collectives on mapped memory and by messages.
};

// The timeline in Chrome's trace format, which ui.perfetto.dev can open. A device is a process with three threads: its
// steps, its collectives on mapped memory, and its collectives by messages, which overlap with the steps. Times are
// those of the clock of the machine, so that the timelines of several workers of a machine can be joined. A device that
// finishes work after the call that enqueues it shows the calls.
std::string TimelineJson(const std::string& worker, const std::vector<DeviceTimeline>& devices);

}  // namespace xlad::runtime
