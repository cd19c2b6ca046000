// For the fuzz targets: an input may take a second of this thread's CPU time, however busy the machine is.
#pragma once

#include <time.h>

#include "base/status.h"

namespace xlad::hlo {

// Fails the process at its end where the second is over. What blocks or never ends is libFuzzer's -timeout's to find.
class FuzzTime {
 public:
  FuzzTime() : start_(Seconds()) {}
  ~FuzzTime() { XLAD_CHECK(Seconds() - start_ < 1) << "an input took " << Seconds() - start_ << " s of CPU time"; }
  FuzzTime(const FuzzTime&) = delete;
  FuzzTime& operator=(const FuzzTime&) = delete;

 private:
  static double Seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  const double start_;
};

}  // namespace xlad::hlo
