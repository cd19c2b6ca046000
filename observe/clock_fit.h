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
  // Without samples, local times are taken as they are.
  explicit ClockFit(std::vector<ClockSample> samples);

  // At `local_ns`: what has to be added to get the coordinator's time, and by how much that grows per nanosecond.
  //
  // A weighted least-squares line through all samples. The variance of a sample is that of its error, which half of the
  // round trip bounds, and of how far the rate of a clock may wander between the sample and `local_ns`. The slope has a
  // prior, so that few samples or samples of a short time do not determine it.
  struct Line {
    int64_t offset_ns = 0;
    double slope = 0;
  };
  Line At(int64_t local_ns) const;

 private:
  std::vector<ClockSample> samples_;
};

}  // namespace xlad::observe
