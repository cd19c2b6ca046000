// A clock with a known error, for tests of code that must work although clocks differ.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/clock.h"

namespace xlad {

// How far a clock is ahead, and by how many millionths it is too fast.
struct ClockSkew {
  int64_t offset_ns = 0;
  double ppm = 0;
};

// Thread-safe. `clock` must outlive this object. If two processes skew the same clock equally, they get the same time.
class SkewedClock final : public Clock {
 public:
  SkewedClock(const Clock* clock, const ClockSkew& skew) : clock_(*clock), skew_(skew) {}
  int64_t NowNs() const override { return Skewed(clock_.NowNs()); }
  int64_t WallNs() const override { return Skewed(clock_.WallNs()); }

 private:
  int64_t Skewed(int64_t ns) const {
    return ns + skew_.offset_ns + std::llround(static_cast<double>(ns) * skew_.ppm * 1e-6);
  }

  const Clock& clock_;
  const ClockSkew skew_;
};

}  // namespace xlad
