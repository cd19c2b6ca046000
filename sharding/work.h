// What a partitioned step costs a device, roughly: what it computes and what it sends.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

// What an accelerator computes while it sends a byte: a few hundred teraflops beside a few hundred gigabytes a second,
// and less between hosts.
inline constexpr double kFlopsPerByte = 3072;

// Of dots and convolutions, times the trip counts of the loops around them; unknown counts as one.
double Flops(const hlo::Computation& computation);

// Bytes that a device sends in a step, and its flops as bytes.
absl::StatusOr<double> StepCost(const PartitionedProgram& program);

}  // namespace xlad::sharding
