// Converts a collective instruction into the CollectiveSpec that the runtime executes.
#pragma once

#include <vector>

#include "compiler/analysis/hlo_names.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// The groups of partition ids among which a collective runs, for one replica and `devices` partitions. HLO's
// replica_groups name replicas, partitions or both, depending on the opcode, channel_id and use_global_device_ids; this
// function converts them to partitions. InvalidArgument if a device is out of range or occurs twice, or if the groups
// have different sizes.
absl::StatusOr<std::vector<std::vector<int64_t>>> DeviceGroups(const Instruction& instruction, int64_t devices);

// InvalidArgument if a pair of a collective permute has a device that is not in 0 to devices - 1.
absl::Status CheckPairs(const Instruction& permute, int64_t devices);

// The instruction must have the form that CanonicalizeCollectives produces. The spec's collective_id is the channel id,
// or 0 if the instruction has none. Unimplemented if the runtime has no such collective or reduction, or if the
// operands have different types. InvalidArgument if a pair of a collective permute has a device out of range. Other
// errors are those of DeviceGroups.
absl::StatusOr<CollectiveSpec> MakeCollectiveSpec(const Instruction& instruction, int64_t devices);

}  // namespace xlad::compiler
