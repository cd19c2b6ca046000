// Schedules and costs of plans.
#include "collectives/plan/plan.h"

#include "absl/strings/str_cat.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/cost.h"

namespace xlad::collectives {
namespace {

constexpr int kMaxChannels = 4096;

// The algorithm of a plan that can be built for the spec.
absl::StatusOr<const Algorithm*> AlgorithmFor(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_RETURN_IF_ERROR(ValidateSpec(spec));
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(plan.algorithm));
  if (plan.chunks < 1 || plan.chunks > kMaxChannels || plan.channels < 1 || plan.channels > kMaxChannels) {
    return absl::InvalidArgumentError(
        absl::StrCat("found plan ", plan.ToString(), ", expected chunks and channels of 1 to ", kMaxChannels));
  }
  if (algorithm->applies(spec)) return algorithm;
  std::string applicable;
  for (const Algorithm& other : Algorithms()) {
    if (other.applies(spec)) absl::StrAppend(&applicable, applicable.empty() ? "" : ", ", other.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found algorithm ", plan.algorithm, " for ", spec.ToString(), ", expected one of ", applicable));
}

}  // namespace

std::string CollectivePlan::ToString() const {
  return absl::StrCat(algorithm, " chunks=", chunks, " channels=", channels);
}

absl::StatusOr<CollectivePlan> MakePlan(const CollectiveSpec& spec, const Topology& topology) {
  XLAD_ASSIGN_OR_RETURN(std::vector<PlanCost> ranked, RankPlans(spec, topology));
  return std::move(ranked.front().plan);
}

absl::StatusOr<std::vector<Schedule>> BuildSchedules(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, AlgorithmFor(plan, spec));
  return algorithm->build(plan, spec);
}

absl::StatusOr<uint64_t> ScheduleHash(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<Schedule> schedules, BuildSchedules(plan, spec));
  return HashSchedules(schedules);
}

absl::StatusOr<int64_t> WireBytes(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, AlgorithmFor(plan, spec));
  return algorithm->cost(plan, spec).sent_elements * tensor::ByteWidth(spec.type);
}

absl::StatusOr<int64_t> Rounds(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, AlgorithmFor(plan, spec));
  return algorithm->cost(plan, spec).rounds;
}

}  // namespace xlad::collectives
