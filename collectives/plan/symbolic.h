// Symbolic values of buffers, as expressions over the inputs of the ranks, for the schedule checker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace xlad::collectives {

// Reduction trees, hash-consed: equal trees have equal numbers. Tree r < ranks is the contribution of rank r.
class ReductionTrees {
 public:
  static constexpr int kUndefined = -1;
  static constexpr int kZero = -2;

  explicit ReductionTrees(int ranks);

  // Returns the tree that combines `operands` from left to right with one rounding; a single operand is returned
  // unchanged. Returns Internal if a rank contributes twice, or if an operand is undefined or zero.
  absl::StatusOr<int> Combine(absl::Span<const int> operands);
  // Returns the tree that combines `operands` as a balanced tree (OpKind::kReduceTree). Errors are those of Combine.
  absl::StatusOr<int> CombineBalanced(absl::Span<const int> operands);
  // Whether every rank contributes.
  bool IsComplete(int tree) const;
  // Returns a text such as "(0 + (1 + 2))".
  std::string ToString(int tree) const;

 private:
  struct Tree {
    std::vector<int> operands;           // Empty for the contribution of a rank.
    std::vector<uint64_t> contributors;  // One bit per rank.
  };
  int ranks_;
  std::vector<Tree> trees_;
  absl::flat_hash_map<std::vector<int>, int> by_operands_;
};

// The elements [begin, end) of a buffer. The value at position p is `tree` applied to element p + shift of the ranks'
// inputs.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
  int tree = ReductionTrees::kUndefined;
  int64_t shift = 0;
  int64_t depth = 0;  // The number of messages on the longest chain that this value depends on.
};

// Consecutive segments that cover [0, size).
using Segments = std::vector<Segment>;

// Returns the part [begin, begin + count) of `all`, with positions relative to `begin`.
Segments ReadSegments(const Segments& all, int64_t begin, int64_t count);
// Replaces the elements of `all` that start at `begin` by `values`, whose positions are relative to `begin`.
void WriteSegments(Segments* all, int64_t begin, const Segments& values);
// Combines operands of equal size element by element. Returns the errors of ReductionTrees::Combine, and Internal if
// elements of different positions would be combined.
absl::StatusOr<Segments> CombineSegments(absl::Span<const Segments> operands, bool balanced, ReductionTrees* trees);

}  // namespace xlad::collectives
