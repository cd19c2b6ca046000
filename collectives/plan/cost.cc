// The cost model, and the choice of a plan by predicted time.
#include "collectives/plan/cost.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/message_type.h"

namespace xlad::collectives {
namespace {

CostTerms Terms(const Algorithm& algorithm, const CollectivePlan& plan, const CollectiveSpec& spec, int directions) {
  const AlgorithmCost cost = algorithm.cost(plan, spec);
  const tensor::ElementType type = MessageType(plan, spec);
  const double bytes = tensor::ByteWidth(type);
  const int64_t rounds = cost.rounds + cost.pipeline_rounds;
  // The sends of a rank are sequential, and so are the rounds of the longest chain of dependent messages, each of which
  // sends one chunk. The longer of the two limits the time.
  const int64_t sent = std::max(cost.sent_elements, rounds * cost.round_elements / std::max(plan.chunks, 1));
  CostTerms terms;
  terms.rounds = static_cast<double>(rounds);
  terms.messages = static_cast<double>(cost.messages);
  terms.sent_bytes = static_cast<double>(sent) * bytes / std::min(plan.channels, directions);
  // If the types differ, inputs and results are converted, which reads or writes each of their elements once more.
  const int64_t converted = type == spec.type ? 0 : spec.input_elements() + spec.output_elements();
  terms.reduced_bytes = static_cast<double>(cost.reduced_elements + converted) * bytes;
  terms.window_bytes = static_cast<double>(cost.window_elements) * bytes;
  terms.signal_rounds = static_cast<double>(cost.signal_rounds);
  return terms;
}

// Returns the factor for this number of bytes, interpolated on a logarithmic scale.
double FactorAt(const std::vector<CostCorrection>& points, double bytes) {
  const auto is_after = [&](const CostCorrection& point) { return point.bytes >= bytes; };
  const auto after = std::find_if(points.begin(), points.end(), is_after);
  if (after == points.begin()) return points.front().factor;
  if (after == points.end()) return points.back().factor;
  const CostCorrection& before = *(after - 1);
  const double part = std::log(bytes / before.bytes) / std::log(after->bytes / before.bytes);
  return before.factor + part * (after->factor - before.factor);
}

double Predict(const Algorithm& algorithm, const CollectivePlan& plan, const CollectiveSpec& spec,
               const CostModel& costs) {
  const CostParameters& speeds = costs.parameters;
  const CostTerms terms = Terms(algorithm, plan, spec, speeds.directions);
  const double us = terms.rounds * speeds.round_us + terms.messages * speeds.message_us +
                    terms.sent_bytes / (speeds.gigabytes_per_s * 1e3) +
                    terms.reduced_bytes / (speeds.reduce_gigabytes_per_s * 1e3) +
                    terms.window_bytes / (speeds.window_gigabytes_per_s * 1e3) +
                    terms.signal_rounds * speeds.signal_us;
  const auto known = costs.corrections.find(CorrectionKey(plan, spec));
  if (known == costs.corrections.end() || known->second.empty()) return us;
  return us * FactorAt(known->second, std::max(1.0, static_cast<double>(MovedBytes(spec))));
}

}  // namespace

int64_t MovedBytes(const CollectiveSpec& spec) {
  return std::max(spec.input_elements(), spec.output_elements()) * tensor::ByteWidth(spec.type);
}

std::string CorrectionKey(const CollectivePlan& plan, const CollectiveSpec& spec) {
  return absl::StrCat(ToString(spec.kind), " ", plan.algorithm, plan.chunks > 1 ? " chunks" : "");
}

absl::StatusOr<CostTerms> TermsOf(const CollectivePlan& plan, const CollectiveSpec& spec, int directions) {
  XLAD_RETURN_IF_ERROR(Rounds(plan, spec).status());
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(plan.algorithm));
  return Terms(*algorithm, plan, spec, directions);
}

absl::StatusOr<double> PredictUs(const CollectivePlan& plan, const CollectiveSpec& spec, const CostModel& costs) {
  XLAD_RETURN_IF_ERROR(Rounds(plan, spec).status());
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(plan.algorithm));
  return Predict(*algorithm, plan, spec, costs);
}

absl::StatusOr<std::vector<PlanCost>> RankPlans(const CollectiveSpec& spec, const CostModel& costs) {
  XLAD_RETURN_IF_ERROR(ValidateSpec(spec));
  constexpr int kMaxChunks = 64;
  std::vector<PlanCost> ranked;
  for (const Algorithm& algorithm : Algorithms()) {
    if (!Applies(algorithm, spec) || (algorithm.needs_windows && !costs.parameters.windows)) continue;
    const int most_channels = algorithm.uses_channels ? costs.parameters.directions : 1;
    const int most_chunks = algorithm.uses_chunks ? kMaxChunks : 1;
    PlanCost best;
    for (int channels = 1; channels <= most_channels; channels *= 2) {
      for (int chunks = 1; chunks <= most_chunks; chunks *= 2) {
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
