// Targets for tests of placement.
#pragma once

#include <string>

#include "proto/executable.pb.h"

namespace xlad::service {

inline Target TargetOf(const std::string& kind, const std::string& cpu) {
  Target target;
  target.set_device_kind(kind);
  target.set_cpu(cpu);
  return target;
}

}  // namespace xlad::service
