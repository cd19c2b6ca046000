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
#include "collectives/exec/group/process_group.h"
#include "collectives/exec/messages/message_group.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/mapped.h"

namespace xlad::cli {

// Ranks of one host. Plans for mapped memory run in a ProcessGroup. All other plans send messages, so they run in a
// MessageGroup, which the ranks form when they first prepare such a plan.
class MappedBench {
 public:
  class Operation {
   public:
    const collectives::CollectivePlan& plan() const { return mapped_ != nullptr ? mapped_->plan() : messages_->plan(); }

   private:
    friend class MappedBench;
    // One of these is null.
    std::unique_ptr<collectives::GroupOperation> mapped_;
    std::unique_ptr<collectives::MessageGroup::Operation> messages_;
  };

  // `messages` are the options for forming the MessageGroup of the same ranks.
  MappedBench(std::unique_ptr<collectives::ProcessGroup> group, collectives::MessageGroup::Options messages,
              collectives::CostModel costs)
      : message_options_(std::move(messages)), costs_(std::move(costs)), group_(std::move(group)) {}
  int rank() const { return group_->rank(); }
  int ranks() const { return group_->ranks(); }
  std::string host(int rank) const { return group_->host(rank); }
  int64_t pid(int rank) const { return group_->pid(rank); }
  // Without the rings of the MessageGroup.
  int64_t shared_bytes() const { return group_->shared_bytes(); }
  absl::StatusOr<std::byte*> Allocate(int64_t bytes) { return group_->Allocate(bytes); }
  absl::Status Free(std::byte* address) { return group_->Free(address); }
  absl::StatusOr<std::unique_ptr<Operation>> Prepare(const collectives::CollectiveSpec& spec,
                                                     const collectives::PrepareOptions& options = {}) {
    auto operation = std::make_unique<Operation>();
    XLAD_ASSIGN_OR_RETURN(const bool sends_messages, SendsMessages(options.plan));
    if (!sends_messages) {
      XLAD_ASSIGN_OR_RETURN(operation->mapped_, group_->Prepare(spec, options));
      return operation;
    }
    const absl::Status status = PrepareMessages(spec, options.plan, operation.get());
    messages_status_.Update(status);
    XLAD_RETURN_IF_ERROR(status);
    return operation;
  }
  absl::Status Run(Operation& operation, const void* input, void* output) {
    if (operation.mapped_ != nullptr) return group_->Run(*operation.mapped_, input, output);
    const absl::Status status = messages_->Run(*operation.messages_, input, output);
    messages_status_.Update(status);
    return status;
  }
  absl::Status Barrier() { return group_->Barrier(); }
  absl::StatusOr<std::unique_ptr<collectives::ProcessGroup>> Shrink() {
    // Messages may have failed because a rank has died. Then the barrier fails too, and the ProcessGroup can shrink.
    if (!messages_status_.ok() && group_->Barrier().ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("found that no rank has died, expected Shrink only after a death; the error was: ",
                       messages_status_.message()));
    }
    // Another rank may still wait for a connection to the dead rank, for at most message_options_.deadline_ms.
    constexpr int64_t kShrinkMs = 30000;
    return group_->Shrink(kShrinkMs + message_options_.deadline_ms);
  }

  // The plans among which the group chooses, with their predicted times, fastest first. They do not send messages: the
  // parameters are those of mapped memory.
  std::vector<collectives::PlanCost> Candidates(const collectives::CollectiveSpec& spec,
                                                const collectives::PrepareOptions& options) const {
    std::vector<collectives::PlanCost> plans;
    for (const collectives::CollectivePlan& plan : group_->Plans(spec, options.registered)) {
      const auto us = collectives::PredictUs(plan, spec, costs_);
      if (us.ok()) plans.push_back({plan, *us});
    }
    std::stable_sort(plans.begin(), plans.end(),
                     [](const auto& a, const auto& b) { return a.predicted_us < b.predicted_us; });
    return plans;
  }
  std::string WhyChosen(const collectives::CollectiveSpec& spec, const collectives::PrepareOptions& options) const {
    return group_->WhyChosen(spec, options.registered);
  }

 private:
  absl::Status PrepareMessages(const collectives::CollectiveSpec& spec, const std::string& plan, Operation* operation) {
    if (messages_ == nullptr) {
      XLAD_ASSIGN_OR_RETURN(messages_, collectives::MessageGroup::Join(message_options_));
    }
    XLAD_ASSIGN_OR_RETURN(operation->messages_, messages_->Prepare(spec, plan));
    return absl::OkStatus();
  }
  // Whether the plan, as text, is one that a ProcessGroup cannot run. An empty text stands for the group's choice.
  static absl::StatusOr<bool> SendsMessages(const std::string& text) {
    if (text.empty()) return false;
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectivePlan plan, collectives::ParsePlan(text));
    return !collectives::IsMapped(plan);
  }

  const collectives::MessageGroup::Options message_options_;
  const collectives::CostModel costs_;
  // Null until a plan needs it. Its destructor waits for all ranks. If one of them waits in the ProcessGroup for this
  // rank, it continues when this rank has left the ProcessGroup, which is therefore destroyed first.
  std::unique_ptr<collectives::MessageGroup> messages_;
  std::unique_ptr<collectives::ProcessGroup> group_;
  absl::Status messages_status_;  // The first error of messages.
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
