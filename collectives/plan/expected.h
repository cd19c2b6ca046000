// What the output of each rank must be, element by element.
#pragma once

#include <vector>

#include "collectives/plan/spec.h"

namespace xlad::collectives {

// The output elements [begin, end) of a rank: element p is the contribution of rank `source` at element p + shift of
// its input, or the reduction of that element over all ranks, or zero. Elements in no interval may have any value.
struct ExpectedOutput {
  static constexpr int kAllRanks = -1;
  static constexpr int kZero = -2;
  int64_t begin = 0;
  int64_t end = 0;
  int source = kAllRanks;
  int64_t shift = 0;
};

// In ascending order; empty intervals are omitted.
std::vector<ExpectedOutput> ExpectedOutputOf(const CollectiveSpec& spec, int rank);

}  // namespace xlad::collectives
