// Runs an executable on devices of this process, with collectives between their threads.
#pragma once

#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"
#include "tensor/array.h"

namespace xlad {

using DeviceArrays = std::vector<std::vector<tensor::Array>>;  // By device, by leaf.

// One step: inputs are every device's shards of the entry's parameters, results those of its results. Memory that the
// program has not written holds garbage.
absl::StatusOr<DeviceArrays> RunOnDevices(const Executable& executable, const DeviceArrays& inputs);

}  // namespace xlad
