// When each value of a Program must keep its memory.
//
// Ops are numbered in program order, bodies inside their loop or branch; op t reads at point 2t and writes at 2t+1. A
// value occupies its memory from the point where it is written to the point 2t+1 of its last reader t (its memory may
// not be overwritten while that op runs), and around a loop where the next round reads it. Sound for any nesting:
// computed as a backward data flow to a fixed point, not from positions alone.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/buffers/program.h"

namespace xlad::compiler {

struct Interval {
  int64_t first = 0, last = 0;  // Points, both inside.
  friend bool operator==(const Interval&, const Interval&) = default;
};
using Intervals = std::vector<Interval>;  // Sorted, disjoint.

struct Liveness {
  std::vector<Intervals> values;  // By value.
  std::vector<const Op*> op_at;   // By number; null for the ends of loops and branches.
  int64_t points = 0;
};

Liveness ComputeLiveness(const Program& program);

bool Overlap(const Intervals& a, const Intervals& b);
Intervals Intersect(const Intervals& a, const Intervals& b);
Intervals Unite(const Intervals& a, const Intervals& b);
bool Contains(const Intervals& intervals, int64_t point);

}  // namespace xlad::compiler
