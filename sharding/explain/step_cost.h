// The cost of one step of a partitioned program.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

// Bytes that a device sends in a step, and its flops as bytes.
absl::StatusOr<double> StepCost(const PartitionedProgram& program);

}  // namespace xlad::sharding
