// Runs an executable on several devices of this process, with collectives between their threads.
#pragma once

#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"
#include "tensor/array.h"

namespace xlad {

using DeviceArrays = std::vector<std::vector<tensor::Array>>;  // Indexed by device, then by leaf.

// Runs one step on memory that is first filled with bytes 0xEF. `inputs` are each device's shards of the entry's
// parameters. Returns each device's shards of the results. If there are two workers, collectives between even and odd
// devices are messages over TCP, and started collectives run on threads of their own.
absl::StatusOr<DeviceArrays> RunOnDevices(const Executable& executable, const DeviceArrays& inputs, int workers = 1);

}  // namespace xlad
