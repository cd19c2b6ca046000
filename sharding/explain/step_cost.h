// The cost of one step of a partitioned program.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

// The bytes that a device sends in a step, plus its floating-point operations divided by kFlopsPerByte. Pipelines
// compare partitionings of a program by this cost. InvalidArgument if the program has no module.
absl::StatusOr<double> StepCost(const PartitionedProgram& program);

}  // namespace xlad::sharding
