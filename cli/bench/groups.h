// Adapters with a common interface for the two groups of `xlad bench`: ranks that map each other's memory, and ranks
// that only exchange messages.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/exec/any_plan/any_plan_group.h"
#include "collectives/exec/group/process_group.h"
#include "collectives/exec/messages/message_group.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/mapped.h"

namespace xlad::cli {

// Ranks of one host, which run every plan.
class MappedBench : public collectives::AnyPlanGroup {
 public:
  MappedBench(std::unique_ptr<collectives::ProcessGroup> group, collectives::MessageGroup::Options messages,
              collectives::CostModel costs)
      : AnyPlanGroup(std::move(group), std::move(messages)), costs_(std::move(costs)) {}
  int rank() const { return mapped().rank(); }
  int ranks() const { return mapped().ranks(); }
  std::string host(int rank) const { return mapped().host(rank); }
  int64_t pid(int rank) const { return mapped().pid(rank); }
  // Without the rings of the MessageGroup.
  int64_t shared_bytes() const { return mapped().shared_bytes(); }
  absl::StatusOr<std::byte*> Allocate(int64_t bytes) { return mapped().Allocate(bytes); }
  absl::Status Free(std::byte* address) { return mapped().Free(address); }

  // The plans among which the group chooses, with their predicted times, fastest first. They do not send messages: the
  // parameters are those of mapped memory.
  std::vector<collectives::PlanCost> Candidates(const collectives::CollectiveSpec& spec,
                                                const collectives::PrepareOptions& options) const {
    std::vector<collectives::PlanCost> plans;
    for (const collectives::CollectivePlan& plan : mapped().Plans(spec, options.registered)) {
      const auto us = collectives::PredictUs(plan, spec, costs_);
      if (us.ok()) plans.push_back({plan, *us});
    }
    std::stable_sort(plans.begin(), plans.end(),
                     [](const auto& a, const auto& b) { return a.predicted_us < b.predicted_us; });
    return plans;
  }
  std::string WhyChosen(const collectives::CollectiveSpec& spec, const collectives::PrepareOptions& options) const {
    return mapped().WhyChosen(spec, options.registered);
  }

 private:
  const collectives::CostModel costs_;
};

class MessageBench {
 public:
  using Operation = collectives::MessageGroup::Operation;

  // The group must outlive the object.
  explicit MessageBench(collectives::MessageGroup* group) : group_(*group) {}
  int rank() const { return group_.rank(); }
  int ranks() const { return group_.ranks(); }
  std::string host(int rank) const { return group_.host(rank); }
  int64_t pid(int rank) const { return group_.pid(rank); }
  int64_t shared_bytes() const { return 0; }
  absl::StatusOr<std::byte*> Allocate(int64_t bytes) { return group_.Allocate(bytes); }
  absl::Status Free(std::byte* address) { return group_.Free(address); }
  absl::StatusOr<std::unique_ptr<Operation>> Prepare(const collectives::CollectiveSpec& spec,
                                                     const collectives::PrepareOptions& options = {}) {
    if (!options.plan.empty()) {
      XLAD_ASSIGN_OR_RETURN(const collectives::CollectivePlan plan, collectives::ParsePlan(options.plan));
      if (collectives::IsMapped(plan)) {
        return absl::InvalidArgumentError(absl::StrCat("found plan ", plan.ToString(),
                                                       ", which is for ranks that map each other's memory, expected ",
                                                       "--transport auto or shm, or a plan that sends messages: ",
                                                       collectives::AlgorithmNames(/*on_mapped_memory=*/false, &spec)));
      }
    }
    return group_.Prepare(spec, options.plan);
  }
  absl::Status Run(Operation& operation, const void* input, void* output) {
    return group_.Run(operation, input, output);
  }
  absl::Status Barrier() { return group_.Barrier(); }
  absl::StatusOr<std::unique_ptr<collectives::MessageGroup>> Shrink() { return group_.Shrink(); }

  // The plans that the group could run, with their predicted times, fastest first. If plans have equal schedules, only
  // the first of them is listed.
  std::vector<collectives::PlanCost> Candidates(const collectives::CollectiveSpec& spec,
                                                const collectives::PrepareOptions&) const {
    auto ranked = collectives::RankPlans(spec, group_.costs()).value_or(std::vector<collectives::PlanCost>());
    std::set<uint64_t> seen;
    std::erase_if(ranked, [&](const collectives::PlanCost& candidate) {
      const auto schedules = collectives::BuildSchedules(candidate.plan, spec);
      return schedules.ok() && !seen.insert(collectives::HashSchedules(*schedules)).second;
    });
    return ranked;
  }
  std::string WhyChosen(const collectives::CollectiveSpec& spec, const collectives::PrepareOptions&) const {
    const bool any_order = !collectives::Reduces(spec.kind) || spec.mode == collectives::ReductionMode::kFast;
    if (any_order) return "chosen because its predicted time is the shortest";
    return "chosen because its predicted time is the shortest among the plans that keep the order of the mode";
  }

 private:
  collectives::MessageGroup& group_;
};

}  // namespace xlad::cli
