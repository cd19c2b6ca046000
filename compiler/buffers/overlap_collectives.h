// Splits collectives into a start and an end, with other operations in between.
#pragma once

#include "compiler/buffers/linear_program.h"

namespace xlad::compiler {

// The order of the operations decides how long a collective may run: from its place, at which its operands are ready,
// to the first operation that reads or writes one of its results or writes one of its operands, or to the end of the
// list.
// If there is enough computation in between to be worth the start of a thread, the collective gets a number
// (`request`), and an operation kCollectiveDone with this number is added before that operation:
//
//   all-reduce %a(v1) -> v2             all-reduce-start #1 %a(v1) -> v2
//   fusion %f(v3) -> v4         =>      fusion %f(v3) -> v4
//   add %s(v2, v4) -> v5                all-reduce-done #1 %a(v1, v2) ->
//                                       add %s(v2, v4) -> v5
//
// The end reads all operands and results of the collective, so that they keep their memory until then. An operand
// without later readers becomes the result as well, if the collective can run in place: its memory would be used twice
// otherwise.
//
// Collectives with `min_ns` or more of computation (ComputeNs) in between are split. Returns their number.
int OverlapCollectives(LinearProgram* program, double min_ns);

// What it costs to hand a collective to another thread and to wait for it.
inline constexpr double kMinOverlapNs = 20e3;

}  // namespace xlad::compiler
