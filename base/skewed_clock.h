// A clock with a known error, for tests of code that must work even if the clocks of processes differ.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/clock.h"

namespace xlad {

// The error of a clock.
struct ClockSkew {
  int64_t offset_ns = 0;  // How far the clock is ahead.
  // By how many parts per million the clock is too fast. The error grows from the start of the clock, which is 1970 for
  // WallNs.
  double ppm = 0;
};

// Thread-safe. `clock` must outlive this object. Two processes that skew the same clock equally get the same time.
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
