// The cost model: what a computation costs a device, in floating-point operations and in bytes sent.
#pragma once

#include "hlo/module.h"

namespace xlad::sharding {

// What an accelerator computes while it sends a byte: a few hundred teraflops beside a few hundred gigabytes a second,
// and less between hosts.
inline constexpr double kFlopsPerByte = 3072;

// Of dots and convolutions, times the trip counts of the loops around them; unknown counts as one.
double Flops(const hlo::Computation& computation);

}  // namespace xlad::sharding
