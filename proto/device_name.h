// Names of devices as text: "cpu", or "KIND:MODEL" for a kind that has models.
#pragma once

#include <string>

#include "proto/executable.pb.h"

namespace xlad {

// Executables and workers of versions without device kinds leave `device_kind` empty, which means the cpu device.
inline std::string DeviceName(const Target& target) {
  const std::string kind = target.device_kind().empty() ? "cpu" : target.device_kind();
  return target.device_model().empty() ? kind : kind + ":" + target.device_model();
}

// The kind in a name: KIND of "KIND:MODEL".
inline std::string KindOfDevice(const std::string& name) { return name.substr(0, name.find(':')); }

}  // namespace xlad
