// Liveness: the intervals of time in which each value of a LinearProgram must keep its memory.
//
// Operations are numbered in program order, including those of bodies and branches. Operation t reads at point 2t and
// writes at point 2t + 1. A value is live from the point at which it is written to the point 2t + 1 of its last reader
// t. Its memory must not be overwritten while t runs, unless t may write in place. For example
//
//   0: v1 = negate(v0)       v1 is live in [1, 5]
//   1: v2 = cosine(v1)       v2 is live in [3, 5]
//   2: v3 = add(v1, v2)      v3 is live from 5 on; it may be written over v1 or v2 if the pair is in may_share
//
// A value that the next iteration of a loop reads is live through the whole loop. The method is the usual backward
// data-flow analysis over live sets, with the fixed point of each loop in closed form.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/buffers/linear_program.h"

namespace xlad::compiler {

struct Interval {
  int64_t first = 0, last = 0;  // Both points are included.
  friend bool operator==(const Interval&, const Interval&) = default;
};
using Intervals = std::vector<Interval>;  // Sorted, disjoint.

struct Liveness {
  std::vector<Intervals> values;  // One for each value.
  // For each number, the operation of the program, or null at the end of a body or branch. Points into the program.
  std::vector<const LinearOp*> op_at;
  int64_t points = 0;  // All points are less than this.
};

Liveness ComputeLiveness(const LinearProgram& program);

// Set operations on the points of intervals.
bool Overlap(const Intervals& a, const Intervals& b);
Intervals Intersect(const Intervals& a, const Intervals& b);
Intervals Unite(const Intervals& a, const Intervals& b);
bool HasPoint(const Intervals& intervals, int64_t point);

}  // namespace xlad::compiler
