// Splits collectives into a start and an end that have other operations between them.
#pragma once

#include "compiler/buffers/linear_program.h"

namespace xlad::compiler {

// A collective may run from its position in the list of operations to the first operation that reads or writes one of
// its results or writes one of its operands. If there is no such operation, it may run to the end of the list. If there
// are operations in between that take at least `min_ns` nanoseconds together, the collective gets a number (`request`).
// An operation kCollectiveDone with this number is inserted where the collective must end:
//
//   all-reduce %a(v1) -> v2             all-reduce-start #1 %a(v1) -> v2
//   fusion %f(v3) -> v4         =>      fusion %f(v3) -> v4
//   add %s(v2, v4) -> v5                all-reduce-done #1 %a(v1, v2) ->
//                                       add %s(v2, v4) -> v5
//
// The end reads all operands and results of the collective, so that they keep their memory until then. If an operand
// has no later readers and the collective can run in place, the operand and the result become one value. As separate
// values, both would need memory until the end.
//
// Splits collectives that can be overlapped with at least `min_ns` nanoseconds of computation (ComputeNs). Returns the
// number of these collectives.
int OverlapCollectives(LinearProgram* program, double min_ns);

// The time in nanoseconds to hand a collective to another thread and to wait for it.
inline constexpr double kMinOverlapNs = 20e3;

}  // namespace xlad::compiler
