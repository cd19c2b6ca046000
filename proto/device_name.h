// Formats the device kind of a target as text: "cpu", or "KIND:MODEL" for a kind that has models.
#pragma once

#include <string>

#include "proto/executable.pb.h"

namespace xlad {

// Executables and workers from versions without device kinds leave `device_kind` empty; they are for the cpu device.
inline std::string DeviceName(const Target& target) {
  const std::string kind = target.device_kind().empty() ? "cpu" : target.device_kind();
  return target.device_model().empty() ? kind : kind + ":" + target.device_model();
}

}  // namespace xlad
