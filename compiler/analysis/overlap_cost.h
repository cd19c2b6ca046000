// Estimated times of computation and of collectives. With them, the compiler decides which collectives to combine and
// what to compute while a collective runs. The estimates depend only on the program, because the machines that will run
// it are not known.
#pragma once

#include <cstdint>

#include "hlo/module.h"

namespace xlad::compiler {

// The time of one instruction on one core, in nanoseconds: a kernel, a library op, or a loop or conditional with
// everything inside. A loop whose trip count is 0 or unknown counts as one iteration. A conditional takes the mean of
// its branches. The time of collectives is not included.
double ComputeNs(const hlo::Instruction& instruction);

// A network between hosts.
struct NetworkSpeed {
  double latency_ns = 0;
  double bytes_per_ns = 0;
};
// A program must be suitable for all of these networks: 8, 0.8 and 0.08 Gbit/s.
inline constexpr NetworkSpeed kNetworks[] = {{50e3, 1}, {50e3, 0.1}, {50e3, 0.01}};

// The time of a collective among `ranks` devices on different hosts, in nanoseconds: the latency plus the transfer.
double TransferNs(const hlo::Instruction& collective, int64_t ranks, const NetworkSpeed& network);

// The size in bytes of the buckets into which all-reduces among `ranks` devices are combined. `total` is the sum of the
// bytes of all of these all-reduces.
//
// With b buckets, computation does not hide the latencies of b collectives and the transfer of the last bucket. The sum
// of these times, b * latency + total / (b * rate), is least if a bucket has sqrt(total * l) bytes. Here, `rate` is in
// bytes per unit of time, and l = latency * rate is the number of bytes whose transfer takes as long as the latency. If
// `total` is at most l, there is one bucket. Otherwise there are at least two.
int64_t BucketBytes(int64_t total, int64_t ranks);

}  // namespace xlad::compiler
