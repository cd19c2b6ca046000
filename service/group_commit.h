// Group commit: passes batches of events to a CoordinatorCore, makes their records durable with one append, and only
// then releases actions and answers.
//
// If the log cannot be opened or written, no actions of the batch are released, and waiting requests get Unavailable.
// The coordinator is dropped, because it is unknown whether the log has the batch. TryOpen then reopens the log,
// recovers exactly as after a restart of the process, and begins a new term. Used by one thread at a time. The daemon
// (engine.h) and the simulation (tests/simulation) use the same class.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "service/coordinator.h"

namespace xlad::service {

// One event or request.
struct Work {
  std::function<void(CoordinatorCore&)> handle;
  // Called with OK when the effects are durable, or with an error if they were discarded. May be null.
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

  // Opens the log and recovers. Returns the actions of the recovery. After an error, TryOpen may be called again.
  absl::StatusOr<Actions> TryOpen(const std::string& reason);
  bool is_open() const { return coordinator_ != nullptr; }

  // Handles the batch, and a tick if `tick` is set, and commits. Returns the actions. The caller must carry them out
  // and then call each `answer` of the batch with OK. If the append fails, Commit closes this object, calls each
  // `answer` with Unavailable, and returns the error of the append. This object must be open.
  absl::StatusOr<Actions> Commit(const std::vector<Work>& batch, bool tick);

  // Null while this object is closed.
  CoordinatorCore* coordinator() { return coordinator_.get(); }
  // Shared because readers may still use the log after this object has closed. Null while this object is closed.
  std::shared_ptr<JobLog> log() const { return log_; }
  // Why this object is closed.
  const absl::Status& failure() const { return failure_; }

 private:
  absl::Status Close(absl::Status why);

  const CoordinatorOptions options_;
  const Environment environment_;
  std::shared_ptr<JobLog> log_;
  std::unique_ptr<CoordinatorCore> coordinator_;
  std::map<JobId, int64_t> ages_;  // CoordinatorCore::AgesOfEndedJobs when an append failed.
  absl::Status failure_;
};

}  // namespace xlad::service
