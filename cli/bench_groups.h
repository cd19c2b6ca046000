// Adapters with a common interface for the two groups of `xlad bench`: a ProcessGroup, which uses mapped memory, and a
// MessageGroup.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/exec/group/process_group.h"
#include "collectives/exec/messages/message_group.h"
#include "collectives/plan/cost.h"

namespace xlad::cli {

class MappedBench {
 public:
  using Operation = collectives::GroupOperation;

  // The group must outlive the object.
  MappedBench(collectives::ProcessGroup* group, collectives::CostModel costs)
      : group_(*group), costs_(std::move(costs)) {}
  int rank() const { return group_.rank(); }
  int ranks() const { return group_.ranks(); }
  std::string host(int rank) const { return group_.host(rank); }
  int64_t pid(int rank) const { return group_.pid(rank); }
  int64_t shared_bytes() const { return group_.shared_bytes(); }
  absl::StatusOr<std::byte*> Allocate(int64_t bytes) { return group_.Allocate(bytes); }
  absl::Status Free(std::byte* address) { return group_.Free(address); }
  absl::StatusOr<std::unique_ptr<Operation>> Prepare(const collectives::CollectiveSpec& spec,
                                                     const collectives::PrepareOptions& options = {}) {
    return group_.Prepare(spec, options);
  }
  absl::Status Run(Operation& operation, const void* input, void* output) {
    return group_.Run(operation, input, output);
  }
  absl::Status Barrier() { return group_.Barrier(); }
  absl::StatusOr<std::unique_ptr<collectives::ProcessGroup>> Shrink() { return group_.Shrink(); }

  // The plans that the group could run, with their predicted times, fastest first.
  std::vector<collectives::PlanCost> Candidates(const collectives::CollectiveSpec& spec,
                                                const collectives::PrepareOptions& options) const {
    std::vector<collectives::PlanCost> plans;
    for (const collectives::CollectivePlan& plan : group_.Plans(spec, options.registered)) {
      const auto us = collectives::PredictUs(plan, spec, costs_);
      if (us.ok()) plans.push_back({plan, *us});
    }
    std::stable_sort(plans.begin(), plans.end(),
                     [](const auto& a, const auto& b) { return a.predicted_us < b.predicted_us; });
    return plans;
  }
  std::string WhyChosen(const collectives::CollectiveSpec&) const {
    return "chosen by size: one shot for small data; otherwise windows for registered buffers, and slots for others";
  }

 private:
  collectives::ProcessGroup& group_;
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
  std::string WhyChosen(const collectives::CollectiveSpec& spec) const {
    const bool any_order = !collectives::Reduces(spec.kind) || spec.mode == collectives::ReductionMode::kFast;
    if (any_order) return "chosen because its predicted time is the shortest";
    return "chosen because its predicted time is the shortest among the plans that keep the order of the mode";
  }

 private:
  collectives::MessageGroup& group_;
};

}  // namespace xlad::cli
