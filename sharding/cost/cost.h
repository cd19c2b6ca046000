// The cost model: the bytes that a device sends and the floating-point operations that it executes.
//
// The inputs of the model are instructions, shapes and groups, but not how the program is partitioned. The same
// formulas are therefore used to choose a sharding, to plan a resharding and to explain a partitioned program.
#pragma once

#include <cstdint>

#include "hlo/module.h"

namespace xlad::sharding {

// The bytes that each of `group_size` devices sends in one collective, if the algorithm is bandwidth-optimal (a ring,
// for example). `bytes` is the size of one device's operand or of its result, whichever is larger: the result of an
// all-gather, otherwise the operand.
//
//   collective          bytes sent by each of n devices     example: n = 4, f32[1024], bytes = 4096
//   all-reduce          2 (n-1)/n bytes                      6144
//   all-gather            (n-1)/n bytes                      3072
//   reduce-scatter        (n-1)/n bytes                      3072
//   all-to-all            (n-1)/n bytes                      3072
//   any other                     bytes                      4096   (collective-permute: the operand)
//
// Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (2005). The
// lower bound is proven in Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations"
// (2009).
double CommunicationBytes(hlo::Opcode collective, double bytes, int64_t group_size);

// The number of floating-point operations that an accelerator executes in the time it takes to send one byte. The value
// corresponds, for example, to 600 teraflop/s and a bandwidth of 200 gigabytes/s. Flops divided by this number can be
// compared with CommunicationBytes.
inline constexpr double kFlopsPerByte = 3072;

// The floating-point operations of the dots and convolutions of a computation, including those in loops, calls and all
// branches of conditionals (hlo/analysis/counts.h). Operations in a loop count once per iteration
// (hlo::TripCountOrAssumed).
double Flops(const hlo::Computation& computation);

}  // namespace xlad::sharding
