// Folding of ranks for algorithms that need a power of two: Thakur, Rabenseifner and Gropp, "Optimization of collective
// communication operations in MPICH", 2005.
#pragma once

#include "collectives/plan/algorithms/build.h"

namespace xlad::collectives {

// Let n be the number of ranks, and m the largest power of two that is at most n. The algorithm runs on m of the ranks,
// the members. Each of the first n - m members also represents the rank at the next position: positions 2i and 2i + 1
// with i < n - m belong to member i, and position p >= 2 (n - m) belongs to member p - (n - m).
class Fold {
 public:
  Fold(int ranks, int position) : position_(position) {
    while (members_ * 2 <= ranks) members_ *= 2;
    extra_ = ranks - members_;
  }
  int members() const { return members_; }
  int levels() const { return CeilLog2(members_); }
  // Whether this position is represented by the position before it, or represents the position after it.
  bool is_folded() const { return position_ < 2 * extra_ && position_ % 2 == 1; }
  bool has_folded() const { return position_ < 2 * extra_ && position_ % 2 == 0; }
  bool any_folded() const { return extra_ > 0; }
  int num_folded() const { return extra_; }
  int member() const { return position_ < 2 * extra_ ? position_ / 2 : position_ - extra_; }
  int PositionOf(int member) const { return member < extra_ ? 2 * member : member + extra_; }

 private:
  int position_;
  int members_ = 1;
  int extra_ = 0;
};

}  // namespace xlad::collectives
