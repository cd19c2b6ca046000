// Relates the clock of a worker to the coordinator's clock, from the messages that they exchange (proto/trace.proto).
#pragma once

#include <cstdint>
#include <vector>

#include "proto/trace.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::observe {

// Immutable; thread-safe.
class ClockFit {
 public:
  // Without samples, local times are used unchanged.
  explicit ClockFit(std::vector<ClockSample> samples);

  // The offset to add to a worker's time near `local_ns` to get the coordinator's time, and the growth of the offset
  // per nanosecond.
  //
  // The result is a weighted least-squares line through the samples. If there are more than 4096 samples, only those
  // with the shortest round trips are used. The variance of a sample is the sum of two variances: that of its error (at
  // most half of the round trip), and that of the clock's drift between the sample and `local_ns`. The slope has a
  // prior around 0 (100 ppm), so the errors of few samples or of a short time have little effect on it.
  struct Line {
    int64_t offset_ns = 0;
    double slope = 0;
  };
  Line At(int64_t local_ns) const;

 private:
  std::vector<ClockSample> samples_;
};

}  // namespace xlad::observe
