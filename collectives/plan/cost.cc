// The cost model and the choice among plans.
#include "collectives/plan/cost.h"

#include <algorithm>

#include "collectives/plan/algorithm.h"

namespace xlad::collectives {
namespace {

double Predict(const Algorithm& algorithm, const CollectivePlan& plan, const CollectiveSpec& spec,
               const CostParameters& costs) {
  const AlgorithmCost cost = algorithm.cost(plan, spec);
  const double bytes = static_cast<double>(tensor::ByteWidth(spec.type));
  const double rounds = static_cast<double>(cost.rounds + cost.pipeline_rounds);
  // A rank sends its elements one after the other; along the longest chain, each round sends a chunk.
  const double sent = static_cast<double>(std::max(
      cost.sent_elements, (cost.rounds + cost.pipeline_rounds) * cost.round_elements / std::max(plan.chunks, 1)));
  const double rate = costs.gigabytes_per_s * 1e3 * std::min(plan.channels, costs.directions);
  return rounds * costs.round_us + static_cast<double>(cost.messages) * costs.message_us + sent * bytes / rate +
         static_cast<double>(cost.reduced_elements) * bytes / (costs.reduce_gigabytes_per_s * 1e3) +
         static_cast<double>(cost.window_elements) * bytes / (costs.window_gigabytes_per_s * 1e3) +
         static_cast<double>(cost.signal_rounds) * costs.signal_us;
}

}  // namespace

absl::StatusOr<double> PredictUs(const CollectivePlan& plan, const CollectiveSpec& spec, const CostParameters& costs) {
  XLAD_RETURN_IF_ERROR(Rounds(plan, spec).status());
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(plan.algorithm));
  return Predict(*algorithm, plan, spec, costs);
}

absl::StatusOr<std::vector<PlanCost>> RankPlans(const CollectiveSpec& spec, const CostParameters& costs) {
  XLAD_RETURN_IF_ERROR(ValidateSpec(spec));
  constexpr int kMaxChunks = 64;
  std::vector<PlanCost> ranked;
  for (const Algorithm& algorithm : Algorithms()) {
    if (!Applies(algorithm, spec) || (algorithm.needs_windows && !costs.windows)) continue;
    PlanCost best;
    for (int channels = 1; channels <= costs.directions; channels *= 2) {
      for (int chunks = 1; chunks <= kMaxChunks; chunks *= 2) {
        const CollectivePlan plan{.algorithm = std::string(algorithm.name), .chunks = chunks, .channels = channels};
        const double us = Predict(algorithm, plan, spec, costs);
        if (best.plan.algorithm.empty() || us < best.predicted_us) best = {plan, us};
      }
    }
    ranked.push_back(best);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const PlanCost& a, const PlanCost& b) { return a.predicted_us < b.predicted_us; });
  return ranked;
}

}  // namespace xlad::collectives
