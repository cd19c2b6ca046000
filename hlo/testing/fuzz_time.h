// A time limit for inputs of fuzz targets and for tests: seconds of the thread's CPU time, independent of the load of
// the machine.
#pragma once

#include <time.h>

#include "base/status.h"

namespace xlad::hlo {

// Aborts the process in its destructor if more than the limit has passed. Inputs that block or never end are found by
// libFuzzer's -timeout.
class FuzzTime {
 public:
  explicit FuzzTime(double limit_s = 1) : limit_s_(limit_s), start_(Seconds()) {}
  ~FuzzTime() {
    XLAD_CHECK(Seconds() - start_ < limit_s_) << "an input took " << Seconds() - start_ << " s of CPU time";
  }
  FuzzTime(const FuzzTime&) = delete;
  FuzzTime& operator=(const FuzzTime&) = delete;

 private:
  static double Seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  const double limit_s_, start_;
};

}  // namespace xlad::hlo
