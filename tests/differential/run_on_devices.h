// Runs an executable on several devices of this process, with collectives between their threads.
#pragma once

#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"
#include "tensor/array.h"

namespace xlad {

using DeviceArrays = std::vector<std::vector<tensor::Array>>;  // Indexed by device, then by leaf.

// Runs one step. `inputs` are each device's shards of the entry's parameters; returns each device's shards of its
// results. Memory is filled with garbage first. With two workers, collectives between even and odd devices are messages
// over TCP, which run on threads of their own after they are started.
absl::StatusOr<DeviceArrays> RunOnDevices(const Executable& executable, const DeviceArrays& inputs, int workers = 1);

}  // namespace xlad
