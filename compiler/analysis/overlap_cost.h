// Estimated times of computation and of collectives, from which the compiler decides which collectives to combine and
// what to compute while one runs. They are functions of the program alone: the machines that will run it are not known.
#pragma once

#include <cstdint>

#include "hlo/module.h"

namespace xlad::compiler {

// The time of one instruction on one core, in nanoseconds: a kernel, a library op, or a loop or conditional with
// everything inside. A loop whose number of iterations is unknown counts once; a conditional counts as the mean of its
// branches. Collectives take no time here.
double ComputeNs(const hlo::Instruction& instruction);

// A network between hosts.
struct NetworkSpeed {
  double latency_ns = 0;
  double bytes_per_ns = 0;
};
// Networks that a program must suit: 8, 0.8 and 0.08 Gbit/s.
inline constexpr NetworkSpeed kNetworks[] = {{50e3, 1}, {50e3, 0.1}, {50e3, 0.01}};

// The time of a collective among `ranks` devices on different hosts, in nanoseconds: latency and transfer.
double TransferNs(const hlo::Instruction& collective, int64_t ranks, const NetworkSpeed& network);

// The size of the buckets into which all-reduces of `total` bytes in all, among `ranks` devices, are combined.
//
// With b buckets, the latency of b collectives and the transfer of the last bucket, which no computation overlaps, are
// not hidden: b latency + total / (b rate). That is least if a bucket has sqrt(total * l) bytes, where l is the number
// of bytes whose transfer takes as long as the latency. More than l bytes are never in one bucket.
int64_t BucketBytes(int64_t total, int64_t ranks);

}  // namespace xlad::compiler
