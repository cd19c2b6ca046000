// The time that one pass of a pipeline took. The sharding and the compiler pipelines report these times, in execution
// order.
#pragma once

#include <cstdint>
#include <string>

namespace xlad {

struct PassTime {
  std::string pass;  // The pass's name in its pipeline's table. A pass that runs twice is listed twice.
  int64_t ns = 0;    // The wall-clock time.
};

}  // namespace xlad
