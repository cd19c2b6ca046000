// Decides which values a program keeps in memory, if it may compute the others again.
//
// Cuts are positions in a list of operations. There is usually one: the end of the forward pass, where the most memory
// is used. A value that is used before and after a cut is either *saved*, which takes memory at the cut, or *dropped*.
// A dropped value is computed again before its next use, from values that are saved or also computed again.
//
// There are two criteria for values that can be computed again. An operation's results are saved if computing them
// again takes more than `max_ns_per_byte` nanoseconds per byte of memory that dropping them frees. The other values are
// saved at the boundaries of *segments*. A segment ends when more than `segment_bytes` have been dropped since its
// beginning, at the position where the fewest bytes are needed by later operations of the forward pass. Operations
// after the cut compute one segment at a time again, so the memory for this is about that of one segment. Segments of
// equal sizes are the method of Chen et al., Training Deep Nets with Sublinear Memory Cost. For example
//
//   h1 = tanh(dot(x, w)), h2 = tanh(dot(h1, w)), ... h9; all of them are used by the backward pass
//   max_ns_per_byte 0.2:                     the results of dots are saved, those of tanh are dropped
//   all are cheap enough, segments of 3:     h3, h6 and h9 are saved, and the others are dropped
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/buffers/recompute_facts.h"

namespace xlad::compiler {

struct SavingRule {
  double max_ns_per_byte = 0;
  int64_t segment_bytes = 0;
};

// The cuts of a list of operations.
class Cuts {
 public:
  Cuts(std::vector<int> positions, int size);
  // Whether a cut is after operation `before` and before operation `after`, and at neither of them.
  bool Between(int before, int after) const { return after > 0 && up_to_[after - 1] > up_to_[before]; }
  // The first cut at or after the position, or the number of operations.
  int Next(int position) const;
  const std::vector<int>& positions() const { return positions_; }

 private:
  std::vector<int> positions_;  // Sorted.
  std::vector<int> up_to_;      // For each operation, the number of cuts at or before it.
};

class SavePlanner {
 public:
  SavePlanner(const RecomputeFacts& facts, const Cuts& cuts);

  // For each value, whether it is saved. Values that cannot be computed again are always saved.
  std::vector<bool> Plan(const SavingRule& rule);

  // Properties of the last plan.
  struct Dropped {
    int position = 0;
    double ns_per_byte = 0;
    int64_t bytes = 0;
  };
  // The operations with results that are used on both sides of a cut and are dropped, in the order of the list.
  std::vector<Dropped> dropped() const;

 private:
  // What Plan knows about an operation that it has visited.
  struct Visited {
    double own_ns = 0;   // The time to compute it again, with dropped operands that do not cross a cut.
    double full_ns = 0;  // The time to compute it again, with all operands that are not saved.
    int last = 0;        // The last position before which it can be computed again.
  };
  void Visit(int position, const SavingRule& rule);
  void Save(int position);
  // Ends a segment between `first` and `last`. Returns its last position.
  int EndSegment(int first, int last);

  const RecomputeFacts& facts_;
  const Cuts& cuts_;
  std::vector<bool> crosses_;            // For each value, whether it is used on both sides of a cut.
  std::vector<int64_t> crossing_bytes_;  // For each operation, the bytes of its results that cross.
  std::vector<int64_t> feeds_bytes_;     // For each operation, the maximum of crossing_bytes_ over its readers.
  std::vector<int> last_early_use_;      // For each value, its last use up to the next cut.
  std::vector<int64_t> needed_bytes_;    // For each operation, the bytes that later operations before the cut need.

  std::vector<bool> saved_;
  std::vector<bool> is_dropped_;  // For each operation.
  std::vector<Visited> visited_;
  std::vector<int> open_;  // Values of the current segment that may be needed after it.
};

}  // namespace xlad::compiler
