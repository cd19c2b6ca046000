// From a collective instruction to the CollectiveSpec that the runtime executes.
#pragma once

#include <vector>

#include "compiler/analysis/hlo_util.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// The groups of partition ids among which a collective runs, for one replica and `devices` partitions. Resolves what
// channel_id and use_global_device_ids mean. InvalidArgument where a device is in two groups, out of range, or group
// sizes differ.
absl::StatusOr<std::vector<std::vector<int64_t>>> DeviceGroups(const Instruction& instruction, int64_t devices);

// Needs the form that CanonicalizeCollectives leaves. collective_id is the channel id, 0 where there is none.
absl::StatusOr<CollectiveSpec> MakeCollectiveSpec(const Instruction& instruction, int64_t devices);

}  // namespace xlad::compiler
