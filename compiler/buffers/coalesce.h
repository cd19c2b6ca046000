// Which values share one buffer.
#pragma once

#include "compiler/buffers/liveness.h"

namespace xlad::compiler {

struct Classes {
  std::vector<int> class_of;              // By value: the number of its class.
  std::vector<std::vector<int>> members;  // By class; empty where it was merged into another.
  std::vector<Intervals> live;            // By class.
};

Classes Coalesce(const Program& program, const Liveness& liveness);

}  // namespace xlad::compiler
