// Defines the required output of each rank, element by element.
#pragma once

#include <vector>

#include "collectives/plan/spec.h"

namespace xlad::collectives {

// The required value of the output elements [begin, end) of a rank. Element p of the output is element p + shift of the
// input of rank `source`. If `source` is kAllRanks, it is the reduction of the elements p + shift of all ranks' inputs,
// and if `source` is kZero, it is zero. Elements that are not in an interval may have any value.
struct ExpectedOutput {
  static constexpr int kAllRanks = -1;
  static constexpr int kZero = -2;
  int64_t begin = 0;
  int64_t end = 0;
  int source = kAllRanks;
  int64_t shift = 0;
};

// Returns the intervals in ascending order. Empty intervals are omitted.
std::vector<ExpectedOutput> ExpectedOutputOf(const CollectiveSpec& spec, int rank);

}  // namespace xlad::collectives
