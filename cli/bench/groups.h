// What differs between the two groups of `xlad bench`: ranks of one host, which run every plan, and ranks that only
// exchange messages.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/exec/any_plan/any_plan_group.h"
#include "collectives/exec/messages/message_group.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/mapped.h"

namespace xlad::cli {

// The memory that the group uses on this host, without the rings of messages and without that of Allocate.
inline int64_t SharedBytes(const collectives::AnyPlanGroup& group) { return group.mapped().shared_bytes(); }
inline int64_t SharedBytes(const collectives::MessageGroup&) { return 0; }

// Prepares an operation. Errors are those of the group. InvalidArgument, naming --transport, if the plan needs mapped
// memory and the group has none.
inline absl::StatusOr<std::unique_ptr<collectives::AnyPlanGroup::Operation>> PrepareIn(
    collectives::AnyPlanGroup* group, const collectives::CollectiveSpec& spec,
    const collectives::PrepareOptions& options) {
  return group->Prepare(spec, options);
}
inline absl::StatusOr<std::unique_ptr<collectives::MessageGroup::Operation>> PrepareIn(
    collectives::MessageGroup* group, const collectives::CollectiveSpec& spec,
    const collectives::PrepareOptions& options) {
  if (!options.plan.empty()) {
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectivePlan plan, collectives::ParsePlan(options.plan));
    if (collectives::IsMapped(plan)) {
      return absl::InvalidArgumentError(absl::StrCat("found plan ", plan.ToString(),
                                                     ", which is for ranks that map each other's memory, expected ",
                                                     "--transport auto or shm, or a plan that sends messages: ",
                                                     collectives::AlgorithmNames(/*on_mapped_memory=*/false, &spec)));
    }
  }
  return group->Prepare(spec, options.plan);
}

// The plans among which the group chooses, with their times as predicted by `costs`, fastest first. The plans of ranks
// of one host do not send messages, and `costs` must be that of mapped memory.
inline std::vector<collectives::PlanCost> Candidates(const collectives::AnyPlanGroup& group,
                                                     const collectives::CollectiveSpec& spec,
                                                     const collectives::PrepareOptions& options,
                                                     const collectives::CostModel& costs) {
  std::vector<collectives::PlanCost> plans;
  for (const collectives::CollectivePlan& plan : group.mapped().Plans(spec, options.registered)) {
    const auto us = collectives::PredictUs(plan, spec, costs);
    if (us.ok()) plans.push_back({plan, *us});
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [](const auto& a, const auto& b) { return a.predicted_us < b.predicted_us; });
  return plans;
}
// If plans have equal schedules, only the first of them is listed.
inline std::vector<collectives::PlanCost> Candidates(const collectives::MessageGroup&,
                                                     const collectives::CollectiveSpec& spec,
                                                     const collectives::PrepareOptions&,
                                                     const collectives::CostModel& costs) {
  auto ranked = collectives::RankPlans(spec, costs).value_or(std::vector<collectives::PlanCost>());
  std::set<uint64_t> seen;
  std::erase_if(ranked, [&](const collectives::PlanCost& candidate) {
    const auto schedules = collectives::BuildSchedules(candidate.plan, spec);
    return schedules.ok() && !seen.insert(collectives::HashSchedules(*schedules)).second;
  });
  return ranked;
}

// Why the group chooses its plan.
inline std::string WhyChosen(const collectives::AnyPlanGroup& group, const collectives::CollectiveSpec& spec,
                             const collectives::PrepareOptions& options) {
  return group.mapped().WhyChosen(spec, options.registered);
}
inline std::string WhyChosen(const collectives::MessageGroup&, const collectives::CollectiveSpec& spec,
                             const collectives::PrepareOptions&) {
  const bool any_order = !collectives::Reduces(spec.kind) || spec.mode == collectives::ReductionMode::kFast;
  if (any_order) return "chosen because its predicted time is the shortest";
  return "chosen because its predicted time is the shortest among the plans that keep the order of the mode";
}

}  // namespace xlad::cli
