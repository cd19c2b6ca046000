// The table of algorithms. To add one: a file in algorithms/ with its functions, and a row in algorithms/algorithms.cc.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

// What the cost model and the checker know of an algorithm without building its schedules.
struct AlgorithmCost {
  int64_t rounds = 0;            // Messages on the longest chain.
  int64_t messages = 0;          // That the busiest rank sends.
  int64_t sent_elements = 0;     // By the rank that sends most; exact.
  int64_t reduced_elements = 0;  // Operands combined by the busiest rank.
};

struct Algorithm {
  absl::string_view name;
  absl::string_view summary;
  // Whether it does this spec with this many channels.
  bool (*applies)(const CollectiveSpec& spec);
  std::vector<Schedule> (*build)(const CollectivePlan& plan, const CollectiveSpec& spec);
  AlgorithmCost (*cost)(const CollectivePlan& plan, const CollectiveSpec& spec);
};

absl::Span<const Algorithm> Algorithms();

// The row, or InvalidArgument with the names that there are.
absl::StatusOr<const Algorithm*> FindAlgorithm(absl::string_view name);

}  // namespace xlad::collectives
