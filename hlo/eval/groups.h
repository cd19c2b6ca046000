// Which devices a collective runs among.
#pragma once

#include <vector>

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo::eval {

// Device d is replica d / partitions, partition d % partitions.
struct DeviceGrid {
  int64_t replicas = 1, partitions = 1;
  int64_t devices() const { return replicas * partitions; }
};

// The devices that meet `device` at this collective, itself included, in the group's order. InvalidArgument where
// the groups name devices that do not exist or leave this one out. A collective-broadcast may leave devices out: then
// the list is empty.
//
// Whether ids mean replicas, partitions or devices depends on channel_id and use_global_device_ids, as XLA has it:
//   neither                        replicas of one partition
//   channel, reductions/gathers    replicas, with all their partitions
//   channel, other collectives     partitions of one replica
//   channel and global ids         devices
absl::StatusOr<std::vector<int64_t>> MeetingDevices(const Instruction& instruction, const DeviceGrid& grid,
                                                    int64_t device);

// For collective-permute: the device that sends to `device`, or -1 where none does.
absl::StatusOr<int64_t> PermuteSource(const Instruction& instruction, const DeviceGrid& grid, int64_t device);

}  // namespace xlad::hlo::eval
