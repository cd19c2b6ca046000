// Puts the recorded steps of all workers of a job on one clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
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

// One recorded step, with the linear function that converts its local times to times since 1970.
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
  std::vector<AlignedStep> steps;  // Ordered by attempt, step and device.
  bool full = false;               // The file has reached its limit; later steps are missing.
};

// Reads the coordinator's file (proto/trace.proto). Bytes after the last complete record are ignored, because the file
// may be read while it is written. Steps whose lists differ in length are ignored as well.
Traces ReadTraces(absl::string_view file);

// Sets the times of all steps. First converts them with the workers' clock samples. Then divides the steps of each
// attempt into groups that begin within 5 s, without dividing the devices of a step, and corrects each group: moves
// each worker by the least time that puts causes before effects. A message arrives after it is sent, and a rank leaves
// a joining collective after the last rank has entered it. If no moves can put all causes before their effects, the
// moves are those with the smallest worst violation. The mean of the least and the greatest move is subtracted from all
// moves, so that the group as a whole keeps its time. The correction helps if messages determine the workers' clocks
// more exactly than the samples do.
void Align(Traces* traces);

// The largest time in nanoseconds by which an effect still precedes its cause after Align; 0 if all causes precede
// their effects.
int64_t WorstViolationNs(const Traces& traces);

}  // namespace xlad::observe
