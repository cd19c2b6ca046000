// The clock of a worker in terms of the coordinator's clock, from the exchanges between both (proto/trace.proto).
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
  // The result is a weighted least-squares line through the samples; if there are more than 4096, only those with the
  // shortest round trips are used. The variance of a sample is the sum of two variances: of its error (at most half of
  // the round trip), and of the clock's drift between the sample and `local_ns`. The slope has a prior, so that it does
  // not follow the errors of few samples or of a short time.
  struct Line {
    int64_t offset_ns = 0;
    double slope = 0;
  };
  Line At(int64_t local_ns) const;

 private:
  std::vector<ClockSample> samples_;
};

}  // namespace xlad::observe
