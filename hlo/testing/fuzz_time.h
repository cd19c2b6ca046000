// A time limit for inputs of fuzz targets: one second of the thread's CPU time, independent of the load of the machine.
#pragma once

#include <time.h>

#include "base/status.h"

namespace xlad::hlo {

// Aborts the process in its destructor if more than a second has passed. Inputs that block or never end are found by
// libFuzzer's -timeout.
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
