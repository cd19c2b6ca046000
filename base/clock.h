// Time as an interface, so that tests and simulations can run state machines on a virtual clock.
//
// Thread-safe. Outside base/, only code that waits or measures in real time reads the system's clocks directly.
#pragma once

#include <atomic>
#include <cstdint>

namespace xlad {

class Clock {
 public:
  virtual ~Clock() = default;
  // Returns monotonic nanoseconds since an arbitrary start, for intervals and deadlines.
  virtual int64_t NowNs() const = 0;
  // Returns nanoseconds since the Unix epoch, for timestamps that are displayed or stored.
  virtual int64_t WallNs() const = 0;
};

// The system's clocks. The object exists until the process ends.
const Clock& RealClock();

// A clock whose time changes only when Advance is called.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(int64_t now_ns = 0) : now_ns_(now_ns) {}
  int64_t NowNs() const override { return now_ns_.load(); }
  int64_t WallNs() const override { return now_ns_.load(); }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<int64_t> now_ns_;
};

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kNsPerSecond = 1'000'000'000;

}  // namespace xlad
