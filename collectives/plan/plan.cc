// Schedules and costs of plans.
#include "collectives/plan/plan.h"

#include "absl/strings/str_cat.h"
#include "base/hash.h"
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

absl::StatusOr<CollectivePlan> MakePlan(const CollectiveSpec& spec, const CostParameters& costs) {
  XLAD_ASSIGN_OR_RETURN(std::vector<PlanCost> ranked, RankPlans(spec, costs));
  return std::move(ranked.front().plan);
}

absl::StatusOr<Schedule> BuildSchedule(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, AlgorithmFor(plan, spec));
  if (rank < 0 || rank >= spec.ranks) {
    return absl::InvalidArgumentError(absl::StrCat("found rank ", rank, " of ", spec.ToString()));
  }
  return algorithm->build(plan, spec, rank);
}

absl::StatusOr<std::vector<Schedule>> BuildSchedules(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, AlgorithmFor(plan, spec));
  std::vector<Schedule> schedules;
  schedules.reserve(spec.ranks);
  for (int rank = 0; rank < spec.ranks; ++rank) schedules.push_back(algorithm->build(plan, spec, rank));
  return schedules;
}

absl::StatusOr<uint64_t> ScheduleHash(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const Schedule schedule, BuildSchedule(plan, spec, 0));
  const uint64_t texts = Hash64(plan.ToString(), Hash64(spec.ToString()));
  return Hash64(absl::StrCat(HashSchedules({&schedule, 1})), texts);
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
