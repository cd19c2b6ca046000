// The table of collective algorithms. To add one, write its functions in a file in algorithms/ and add a row to
// algorithms/algorithms.def.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

// The costs of an algorithm by formulas, without building its schedules. The checker compares them with the schedules.
struct AlgorithmCost {
  int64_t rounds = 0;            // The number of messages on the longest chain of dependent messages.
  int64_t messages = 0;          // Sent by the rank that sends the most messages.
  int64_t sent_elements = 0;     // Sent by the rank that sends the most elements. Exact.
  int64_t reduced_elements = 0;  // Operand elements combined by the rank that combines the most.
};

struct Algorithm {
  absl::string_view name;
  absl::string_view summary;  // One line for display.
  // Whether the algorithm can run a collective of this spec.
  bool (*applies)(const CollectiveSpec& spec);
  // The schedule of one rank.
  Schedule (*build)(const CollectivePlan& plan, const CollectiveSpec& spec, int rank);
  AlgorithmCost (*cost)(const CollectivePlan& plan, const CollectiveSpec& spec);
};

absl::Span<const Algorithm> Algorithms();

// The algorithm with that name, or InvalidArgument with the names of all algorithms.
absl::StatusOr<const Algorithm*> FindAlgorithm(absl::string_view name);

}  // namespace xlad::collectives
