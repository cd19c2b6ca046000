#include "collectives/exec/any_plan/any_plan_group.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/plan/mapped.h"

namespace xlad::collectives {
namespace {

// Whether the plan, as text, is one that a ProcessGroup cannot run. An empty text stands for the group's choice.
absl::StatusOr<bool> SendsMessages(const std::string& text) {
  if (text.empty()) return false;
  XLAD_ASSIGN_OR_RETURN(const CollectivePlan plan, ParsePlan(text));
  return !IsMapped(plan);
}

}  // namespace

AnyPlanGroup::AnyPlanGroup(std::unique_ptr<ProcessGroup> group, MessageGroup::Options messages)
    : group_(std::move(group)), message_options_(std::move(messages)) {
  message_options_.record = std::make_shared<FlightRecord>(group_->control(), group_->texts(), group_->rank());
  message_options_.check_peer = [this](int rank) { return group_->CheckWhileForming(rank); };
}

absl::StatusOr<std::unique_ptr<AnyPlanGroup::Operation>> AnyPlanGroup::Prepare(const CollectiveSpec& spec,
                                                                               const PrepareOptions& options) {
  auto operation = std::make_unique<Operation>();
  XLAD_ASSIGN_OR_RETURN(const bool sends_messages, SendsMessages(options.plan));
  if (sends_messages) {
    XLAD_RETURN_IF_ERROR(PrepareMessages(spec, options.plan, operation.get()));
  } else {
    XLAD_ASSIGN_OR_RETURN(operation->mapped_, group_->Prepare(spec, options));
  }
  return operation;
}

// Ranks wait for each other while they prepare. The preparation is therefore recorded like an operation.
absl::Status AnyPlanGroup::PrepareMessages(const CollectiveSpec& spec, const std::string& plan, Operation* operation) {
  FlightRecord& record = *message_options_.record;
  const uint64_t word = record.Add(absl::StrCat("the preparation of ", spec.ToString(), ", ", plan));
  record.Begin(word);
  const auto join = [&]() -> absl::Status {
    if (messages_ != nullptr) return absl::OkStatus();
    XLAD_ASSIGN_OR_RETURN(messages_, MessageGroup::Join(message_options_));
    return absl::OkStatus();
  };
  const auto prepare = [&]() -> absl::Status {
    XLAD_ASSIGN_OR_RETURN(operation->messages_, messages_->Prepare(spec, plan));
    return absl::OkStatus();
  };
  absl::Status status = join();
  bool has_ended = false;
  if (status.ok()) {
    status = prepare();
    // All ranks refuse the same plans.
    has_ended = status.ok() || absl::IsInvalidArgument(status) || absl::IsUnimplemented(status);
  }
  if (has_ended) {
    record.End();
  } else {
    record.Fail();
    messages_status_.Update(status);
  }
  record.Remove(word);
  return status;
}

absl::Status AnyPlanGroup::Run(Operation& operation, const void* input, void* output) {
  if (operation.mapped_ != nullptr) return Tell(group_->Run(*operation.mapped_, input, output));
  const absl::Status status = messages_->Run(*operation.messages_, input, output);
  messages_status_.Update(status);
  return status;
}

// Tells the ranks that wait for messages of an error in mapped memory.
absl::Status AnyPlanGroup::Tell(const absl::Status& status) {
  if (!status.ok() && !absl::IsInvalidArgument(status) && messages_ != nullptr) messages_->Abort(status);
  return status;
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> AnyPlanGroup::Shrink() {
  // A rank that has not noticed the error may wait for this rank in mapped memory.
  if (!messages_status_.ok()) group_->Stop(messages_status_);
  // Another rank may still wait for a connection to the dead rank, for at most message_options_.deadline_ms.
  constexpr int64_t kShrinkMs = 30000;
  return group_->Shrink(kShrinkMs + message_options_.deadline_ms);
}

}  // namespace xlad::collectives
