// Jobs that run on devices of several kinds: which devices a job may take, and whether the executables that were made
// for them are one program. Pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::service {

// Devices that a job may take.
struct AllowedDevices {
  std::string name;  // A device name (proto/device_name.h).
  int64_t most = std::numeric_limits<int64_t>::max();
};

// Reads JobSpec.device_name: KIND[:MODEL][:COUNT][,...]. The last part of an element is its count if it is a number.
// Empty text returns an empty list, which allows any device. InvalidArgument says what was found and what is expected:
// an empty element, a count that is not 1 or more, a name that is given twice.
absl::StatusOr<std::vector<AllowedDevices>> ParseAllowedDevices(const std::string& text);

// The sum of all `most`, or the largest number if that is more.
int64_t MostDevices(const std::vector<AllowedDevices>& allowed);

// OK if devices with these executables can run one program together: the executables are made from the same partitioned
// program, have the same collectives, run them in the same order and in the same loops, and divide parameters and
// results in the same way. Otherwise InvalidArgument names both targets and the first difference. Code, memory and all
// other steps may differ.
absl::Status CheckSameProgram(const Executable& first, const Executable& other);

}  // namespace xlad::service
