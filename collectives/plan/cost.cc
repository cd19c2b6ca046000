// The cost model and the choice among plans.
#include "collectives/plan/cost.h"

#include <algorithm>

#include "collectives/plan/algorithm.h"

namespace xlad::collectives {
namespace {

double Predict(const Algorithm& algorithm, const CollectivePlan& plan, const CollectiveSpec& spec,
               const CostParameters& costs) {
  const AlgorithmCost cost = algorithm.cost(plan, spec);
  const double element_bytes = tensor::ByteWidth(spec.type);
  return cost.rounds * costs.round_us + cost.messages * costs.message_us +
         cost.sent_elements * element_bytes / (costs.gigabytes_per_s * 1e3) +
         cost.reduced_elements * element_bytes / (costs.reduce_gigabytes_per_s * 1e3);
}

}  // namespace

absl::StatusOr<double> PredictUs(const CollectivePlan& plan, const CollectiveSpec& spec, const CostParameters& costs) {
  XLAD_RETURN_IF_ERROR(Rounds(plan, spec).status());
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(plan.algorithm));
  return Predict(*algorithm, plan, spec, costs);
}

absl::StatusOr<std::vector<PlanCost>> RankPlans(const CollectiveSpec& spec, const CostParameters& costs) {
  XLAD_RETURN_IF_ERROR(ValidateSpec(spec));
  std::vector<PlanCost> ranked;
  for (const Algorithm& algorithm : Algorithms()) {
    if (!algorithm.applies(spec)) continue;
    const CollectivePlan plan{.algorithm = std::string(algorithm.name)};
    ranked.push_back({plan, Predict(algorithm, plan, spec, costs)});
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const PlanCost& a, const PlanCost& b) { return a.predicted_us < b.predicted_us; });
  return ranked;
}

}  // namespace xlad::collectives
