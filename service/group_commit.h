// Group commit: handles batches of events on a CoordinatorCore, makes their records durable with one append, and only
// then releases actions and answers.
//
// When the log cannot be opened or written, nothing of the batch is released: waiting requests get Unavailable, and the
// coordinator is dropped, because the log may or may not have the batch. TryOpen then opens the log again, recovers
// exactly as after a restart of the process, and begins a new term. Used by one thread at a time; the daemon (engine.h)
// and the simulation (tests/simulation) drive the same class.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "service/coordinator.h"

namespace xlad::service {

// One event or request.
struct Work {
  std::function<void(CoordinatorCore&)> handle;
  // Called when the effects are durable, or with the reason why nothing has been done. May be null.
  std::function<void(const absl::Status&)> answer;
};

class GroupCommit {
 public:
  struct Environment {
    const Clock* clock;
    Random* random;
    std::function<absl::StatusOr<std::shared_ptr<JobLog>>()> open_log;
  };
  GroupCommit(const CoordinatorOptions& options, Environment environment);

  // Opens the log and recovers. The actions are those of the recovery. If it returns an error, it can be called again.
  absl::StatusOr<Actions> TryOpen(const std::string& reason);
  bool is_open() const { return coordinator_ != nullptr; }

  // Handles all of the batch, and a tick if `tick` is set, and commits. Returns the actions to carry out; then the
  // caller calls `answer` of each work with OK. If the append fails, calls each `answer` with the reason and returns
  // the error; it is closed.
  absl::StatusOr<Actions> Commit(const std::vector<Work>& batch, bool tick);

  // Null while it is closed.
  CoordinatorCore* coordinator() { return coordinator_.get(); }
  // Shared, because readers may still use it when this closes. Null while it is closed.
  std::shared_ptr<JobLog> log() const { return log_; }
  // Why it is closed.
  const absl::Status& failure() const { return failure_; }

 private:
  absl::Status Close(absl::Status why);

  const CoordinatorOptions options_;
  const Environment environment_;
  std::shared_ptr<JobLog> log_;
  std::unique_ptr<CoordinatorCore> coordinator_;
  absl::Status failure_;
};

}  // namespace xlad::service
