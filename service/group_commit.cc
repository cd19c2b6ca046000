#include "service/group_commit.h"

#include "base/log.h"

namespace xlad::service {

GroupCommit::GroupCommit(const CoordinatorOptions& options, Environment environment)
    : options_(options), environment_(std::move(environment)) {}

absl::Status GroupCommit::Close(absl::Status why) {
  coordinator_ = nullptr;
  log_ = nullptr;
  failure_ = why;
  return why;
}

absl::StatusOr<Actions> GroupCommit::TryOpen(const std::string& reason) {
  coordinator_ = nullptr;
  log_ = nullptr;
  auto log = environment_.open_log();
  if (!log.ok()) return Close(log.status());
  log_ = *std::move(log);
  coordinator_ = std::make_unique<CoordinatorCore>(options_, environment_.random);
  coordinator_->At(*environment_.clock);
  if (const absl::Status recovered = coordinator_->Recover(log_.get(), reason, ages_); !recovered.ok()) {
    return Close(recovered);
  }
  Effects effects = coordinator_->Take();
  if (const absl::Status appended = log_->Append(&effects.batch); !appended.ok()) return Close(appended);
  failure_ = absl::OkStatus();
  return std::move(effects.actions);
}

absl::StatusOr<Actions> GroupCommit::Commit(const std::vector<Work>& batch, bool tick) {
  coordinator_->At(*environment_.clock);
  for (const Work& work : batch) work.handle(*coordinator_);
  if (tick) coordinator_->OnTick();
  Effects effects = coordinator_->Take();
  if (effects.batch.empty()) return std::move(effects.actions);
  const absl::Status appended = log_->Append(&effects.batch);
  if (appended.ok()) return std::move(effects.actions);
  LogError("the job log cannot be written; serving stops until it can be written",
           {{"error", std::string(appended.message())}});
  ages_ = coordinator_->AgesOfEndedJobs();
  (void)Close(appended);
  const absl::Status refusal = absl::UnavailableError(
      absl::StrCat("the job log cannot be written: ", appended.message(),
                   "; running jobs continue; repair the coordinator's disk, then the coordinator serves again"));
  for (const Work& work : batch) {
    if (work.answer) work.answer(refusal);
  }
  return appended;
}

}  // namespace xlad::service
