// The cost model and the choice among plans.
#include "collectives/plan/cost.h"

#include <algorithm>

#include "collectives/plan/algorithm.h"

namespace xlad::collectives {
namespace {

double Predict(const Algorithm& algorithm, const CollectivePlan& plan, const CollectiveSpec& spec,
               const Topology& topology) {
  const AlgorithmCost cost = algorithm.cost(plan, spec);
  const double element_bytes = tensor::ByteWidth(spec.type);
  return cost.rounds * topology.round_us + cost.messages * topology.message_us +
         cost.sent_elements * element_bytes / (topology.gigabytes_per_s * 1e3) +
         cost.reduced_elements * element_bytes / (topology.reduce_gigabytes_per_s * 1e3);
}

}  // namespace

absl::StatusOr<double> PredictUs(const CollectivePlan& plan, const CollectiveSpec& spec, const Topology& topology) {
  XLAD_RETURN_IF_ERROR(Rounds(plan, spec).status());
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(plan.algorithm));
  return Predict(*algorithm, plan, spec, topology);
}

absl::StatusOr<std::vector<PlanCost>> RankPlans(const CollectiveSpec& spec, const Topology& topology) {
  XLAD_RETURN_IF_ERROR(ValidateSpec(spec));
  std::vector<PlanCost> ranked;
  for (const Algorithm& algorithm : Algorithms()) {
    if (!algorithm.applies(spec)) continue;
    const CollectivePlan plan{std::string(algorithm.name), 1, 1};
    ranked.push_back({plan, Predict(algorithm, plan, spec, topology)});
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const PlanCost& a, const PlanCost& b) { return a.predicted_us < b.predicted_us; });
  return ranked;
}

}  // namespace xlad::collectives
