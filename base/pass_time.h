// The time that one pass of a pipeline took. Both pipelines (sharding and compiler) report these, in execution order.
#pragma once

#include <cstdint>
#include <string>

namespace xlad {

struct PassTime {
  std::string pass;  // The pass's name in its pipeline's table. A pass that runs twice is listed twice.
  int64_t ns = 0;    // Wall-clock time.
};

}  // namespace xlad
