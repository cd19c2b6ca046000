// How a target's kind of device is written: "cpu", or "KIND:MODEL" for a kind that has models.
#pragma once

#include <string>

#include "proto/executable.pb.h"

namespace xlad {

// Executables and workers of versions before device kinds name none; they are for the cpu device.
inline std::string DeviceName(const Target& target) {
  const std::string kind = target.device_kind().empty() ? "cpu" : target.device_kind();
  return target.device_model().empty() ? kind : kind + ":" + target.device_model();
}

}  // namespace xlad
