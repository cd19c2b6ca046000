// Values of buffers as expressions over the ranks' inputs, for the schedule checker.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"

namespace xlad::collectives {

// Reduction trees, each different one once. Trees 0..ranks-1 are the ranks' own contributions.
class ReductionTrees {
 public:
  static constexpr int kUndefined = -1;
  static constexpr int kZero = -2;

  explicit ReductionTrees(int ranks);

  // The tree that combines `operands` from left to right with one rounding; one operand is itself. Fails where a
  // rank contributes twice or an operand is undefined or zero.
  absl::StatusOr<int> Combine(absl::Span<const int> operands);
  // Whether every rank contributes.
  bool IsComplete(int tree) const;
  // "(0 + (1 + 2))"
  std::string ToString(int tree) const;

 private:
  struct Tree {
    std::vector<int> operands;           // Empty: a rank's contribution.
    std::vector<uint64_t> contributors;  // A bit each.
  };
  int ranks_;
  std::vector<Tree> trees_;
  std::map<std::vector<int>, int> by_operands_;
};

// Elements [begin, end) whose value at position p is `tree` over element p + shift of the ranks' inputs.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
  int tree = ReductionTrees::kUndefined;
  int64_t shift = 0;
  int64_t depth = 0;  // Messages behind it, one after the other.
};

// Consecutive segments that cover [0, size).
using Segments = std::vector<Segment>;

// The part [begin, begin + count), with positions counted from its start.
Segments ReadSegments(const Segments& all, int64_t begin, int64_t count);
// Overwrites `all` from position `begin` on with `values` (counted from 0).
void WriteSegments(Segments* all, int64_t begin, const Segments& values);
// Element-wise combination of operands of equal size.
absl::StatusOr<Segments> CombineSegments(absl::Span<const Segments> operands, ReductionTrees* trees);

}  // namespace xlad::collectives
