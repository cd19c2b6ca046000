// For tests: a clock that advances by a fixed time with each reading. With it, measured times and time budgets do not
// depend on the machine.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace xlad::collectives {

class ReadingClock final : public Clock {
 public:
  explicit ReadingClock(int64_t step_ns) : step_ns_(step_ns) {}
  int64_t NowNs() const override { return now_ns_ += step_ns_; }
  int64_t WallNs() const override { return NowNs(); }

 private:
  const int64_t step_ns_;
  mutable std::atomic<int64_t> now_ns_ = 0;
};

}  // namespace xlad::collectives
