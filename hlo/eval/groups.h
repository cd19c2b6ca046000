// Which devices take part in a collective together.
#pragma once

#include <vector>

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo::eval {

// Numbers the devices: device d is partition d % partitions of replica d / partitions.
struct DeviceGrid {
  int64_t replicas = 1, partitions = 1;
  int64_t devices() const { return replicas * partitions; }
};

// The devices of the group of `device` at this collective, in the group's order. Errors: InvalidArgument if the group
// contains an id that does not exist, or if no group contains `device`. As an exception, the groups of a
// collective-broadcast may omit `device`, and the result is then empty. A collective-permute has one group.
//
// Whether the ids in replica_groups are replicas, partitions or devices depends on channel_id and use_global_device_ids
// (as in XLA's CollectiveOpGroupMode):
//   neither                              replicas, of the same partition
//   channel_id; all-reduce,              replicas, with all their partitions
//     reduce-scatter, all-gather and
//     collective-reduce
//   channel_id; other collectives        partitions, of the same replica
//   use_global_device_ids                devices
//
// Example: on 2 replicas of 2 partitions, all-reduce with replica_groups={{0,1}} reduces over devices {0,2} and {1,3}
// without channel_id, and over all four devices with a channel_id.
absl::StatusOr<std::vector<int64_t>> CollectiveGroup(const Instruction& instruction, const DeviceGrid& grid,
                                                     int64_t device);

// The device that sends to `device` in a collective-permute, or -1 if there is none. Errors: InvalidArgument if its id
// does not exist.
absl::StatusOr<int64_t> PermuteSource(const Instruction& instruction, const DeviceGrid& grid, int64_t device);

}  // namespace xlad::hlo::eval
