#include "base/clock.h"

#include <chrono>

namespace xlad {
namespace {

class SystemClock final : public Clock {
 public:
  int64_t NowNs() const override {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  int64_t WallNs() const override {
    return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  }
};

}  // namespace

const Clock& RealClock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace xlad
