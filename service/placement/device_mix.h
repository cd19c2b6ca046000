// Jobs that run on devices of several kinds: which devices a job may take, and whether the executables for these
// devices are the same program. Pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::service {

// One kind of device that a job may take, and the largest number of such devices.
struct AllowedDevices {
  std::string name;  // A device name (proto/device_name.h).
  int64_t most = std::numeric_limits<int64_t>::max();
};

// Reads JobSpec.device_name: KIND[:MODEL][:COUNT][,...]. The last part of an element is its count if it is a number.
// For an empty text, returns an empty list, which allows any device. InvalidArgument, with what was found and what is
// expected, if a name is empty or repeated, or a count is not in the range of 1 to 2^20.
absl::StatusOr<std::vector<AllowedDevices>> ParseAllowedDevices(const std::string& text);

// The sum of all `most`, or the largest int64_t if the sum would overflow.
int64_t MostDevices(const std::vector<AllowedDevices>& allowed);

// OK if devices with these executables can run one program together: the executables are made from the same partitioned
// program, have the same collectives, run them in the same order, loops and branches, and divide parameters and
// results in the same way. Otherwise InvalidArgument names both targets and the first difference. Code, memory and all
// other steps may differ.
absl::Status CheckSameProgram(const Executable& first, const Executable& other);

}  // namespace xlad::service
