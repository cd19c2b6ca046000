// The table of collective algorithms. To add one, write its functions in a file in algorithms/ and add a row to
// algorithms/algorithms.def.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

// The costs of an algorithm by formulas, without building its schedules. CheckPlan compares them with the schedules: if
// the elements divide evenly into the algorithm's parts, rounds and sent_elements are exact, otherwise upper bounds.
struct AlgorithmCost {
  int64_t rounds = 0;            // The number of messages on the longest chain of dependent messages.
  int64_t messages = 0;          // Sent by the rank that sends the most messages.
  int64_t sent_elements = 0;     // Sent by the rank that sends the most elements.
  int64_t reduced_elements = 0;  // Operand elements combined by the rank that combines the most.
  int64_t window_elements = 0;   // Elements of peers that the rank that reads the most reads through windows.
  int64_t signal_rounds = 0;     // The number of times that all ranks wait for signals.
  int64_t pipeline_rounds = 0;   // The rounds that pipelined chunks add.
  int64_t round_elements = 0;    // Sent in one round of the longest chain by all chunks together; 0 if unlimited.
};

struct Algorithm {
  absl::string_view name;
  absl::string_view summary;  // One line for display.
  // Returns "" if the algorithm can run a collective of this spec with the parameters of the plan, otherwise what it
  // expects.
  std::string (*refuses)(const CollectivePlan& plan, const CollectiveSpec& spec);
  // The schedule of one rank.
  Schedule (*build)(const CollectivePlan& plan, const CollectiveSpec& spec, int rank);
  AlgorithmCost (*cost)(const CollectivePlan& plan, const CollectiveSpec& spec);
  bool needs_windows = false;
  // Whether the algorithm reduces in the order of ReductionMode::kCanonical for this number of ranks.
  bool (*is_canonical)(const CollectiveSpec& spec) = nullptr;
  // Whether each element is reduced by one operation, in order of the ranks, with one rounding.
  bool reduces_once = false;
};

absl::Span<const Algorithm> Algorithms();

// The algorithm with that name, or InvalidArgument with the names of all algorithms.
absl::StatusOr<const Algorithm*> FindAlgorithm(absl::string_view name);

// Whether the algorithm can run a collective of this spec, in its mode and with its reduction, with default parameters.
bool Applies(const Algorithm& algorithm, const CollectiveSpec& spec);
// Whether it can run it in the order of ReductionMode::kCanonical.
bool KeepsCanonicalOrder(const Algorithm& algorithm, const CollectiveSpec& spec);
// Whether it can compute averages: an algorithm that sends partial results would divide more than once.
bool CanAverage(const Algorithm& algorithm, const CollectiveSpec& spec);

}  // namespace xlad::collectives
