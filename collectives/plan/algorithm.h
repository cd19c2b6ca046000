// The table of collective algorithms. To add one, write its functions in a file in algorithms/ and add a row to
// algorithms/algorithms.def.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

// The costs of an algorithm, computed by formulas without building its schedules. `rounds` and `sent_elements` are
// exact if the elements divide evenly into the algorithm's parts, and upper bounds otherwise. CheckPlan compares these
// two with the schedules.
struct AlgorithmCost {
  int64_t rounds = 0;            // The number of messages on the longest chain of dependent messages.
  int64_t messages = 0;          // The messages sent by the rank that sends the most messages.
  int64_t sent_elements = 0;     // The elements sent by the rank that sends the most elements.
  int64_t reduced_elements = 0;  // The operand elements combined by the rank that combines the most elements.
  int64_t window_elements = 0;   // The elements read through windows by the rank that reads the most elements.
  int64_t signal_rounds = 0;     // The number of times that all ranks wait for signals.
  int64_t pipeline_rounds = 0;   // The additional rounds if the data is pipelined in chunks.
  // The elements that all chunks together send in one round of the longest chain, or 0 if this sum does not limit the
  // time.
  int64_t round_elements = 0;
};

struct Algorithm {
  absl::string_view name;
  absl::string_view summary;  // One line for display.
  // Returns "" if the algorithm can run a collective of this spec with the parameters of the plan. Otherwise returns
  // what the algorithm expects.
  std::string (*refuses)(const CollectivePlan& plan, const CollectiveSpec& spec);
  // Builds the schedule of one rank.
  Schedule (*build)(const CollectivePlan& plan, const CollectiveSpec& spec, int rank);
  AlgorithmCost (*cost)(const CollectivePlan& plan, const CollectiveSpec& spec);
  bool needs_windows = false;  // Whether the ranks must map each other's memory.
  // Whether the schedules depend on these parameters of a plan. A plan that sets another one is refused.
  bool uses_chunks = true;
  bool uses_channels = true;
  bool uses_grid = false;
  bool uses_radix = false;
  // Returns whether the algorithm reduces in the order of ReductionMode::kCanonical for this number of ranks. If it is
  // null, the algorithm never does.
  bool (*is_canonical)(const CollectiveSpec& spec) = nullptr;
  // Whether each element is reduced by one operation, in the order of the ranks, with one rounding.
  bool reduces_once = false;
};

absl::Span<const Algorithm> Algorithms();

// Returns the algorithm with that name, or InvalidArgument with the names of all algorithms.
absl::StatusOr<const Algorithm*> FindAlgorithm(absl::string_view name);

// Returns the names of the algorithms that send messages, or of those on mapped memory, separated by commas.
// If `spec` is not null, only of those that can run it (Applies).
std::string AlgorithmNames(bool on_mapped_memory, const CollectiveSpec* spec = nullptr);

// Whether the algorithm can run a collective of this spec, in its mode and with its reduction, with default parameters.
bool Applies(const Algorithm& algorithm, const CollectiveSpec& spec);
// Whether the algorithm can run a collective of this spec in the order of ReductionMode::kCanonical. Partial results
// are not rounded; see message_type.h.
bool KeepsCanonicalOrder(const Algorithm& algorithm, const CollectiveSpec& spec);
// Whether the algorithm can compute averages. An algorithm that sends partial results cannot, because it would divide
// more than once.
bool CanAverage(const Algorithm& algorithm, const CollectiveSpec& spec);

}  // namespace xlad::collectives
