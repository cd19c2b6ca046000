// The steps that all workers of a job have recorded, on one clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "observe/clock_fit.h"
#include "proto/trace.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::observe {

// The process of a worker in one attempt.
struct TracedWorker {
  int64_t attempt = 0;
  std::string worker_id, host;
  int64_t pid = 0;
  TracedProgram program;
  std::vector<ClockSample> clock;
};

// One recorded step, with the line that turns its local times into times since 1970.
struct AlignedStep {
  int worker = 0;  // Index into Traces::workers.
  TracedStep step;
  int64_t begin_unix_ns = 0;
  double rate = 1;  // Nanoseconds of the coordinator's clock per nanosecond of the worker's.

  int64_t UnixNs(int64_t since_begin_ns) const {
    return begin_unix_ns + static_cast<int64_t>(static_cast<double>(since_begin_ns) * rate);
  }
};

struct Traces {
  std::vector<TracedWorker> workers;
  std::vector<AlignedStep> steps;  // By attempt, step and device.
  bool full = false;               // The coordinator kept no more.
};

// Reads the coordinator's file (proto/trace.proto). What follows the last complete record is ignored: the file may be
// read while it is written.
Traces ReadTraces(absl::string_view file);

// Sets the times of all steps: first by the workers' clock samples; then the steps of each few seconds are moved by as
// little as is needed so that no message arrives before it is sent, and no rank leaves a joining collective before the
// last one has entered it. Workers whose messages prove more about their clocks than the samples do are thereby
// corrected.
void Align(Traces* traces);

// By which a message or a collective may still seem to go backwards in time after Align: 0 if all causes precede their
// effects.
int64_t WorstViolationNs(const Traces& traces);

}  // namespace xlad::observe
