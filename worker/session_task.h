// A session of the daemon: a runtime::SessionExecutor whose callbacks become events.
#pragma once

#include <functional>
#include <memory>

#include "runtime/session_executor.h"
#include "worker/worker_core.h"

namespace xlad::worker {

// Calls `emit` for each event, on the session's threads.
class SessionTask final : public Task, private runtime::SessionListener {
 public:
  // Sets `environment.listener` and `environment.store`.
  SessionTask(const LaunchTask& launch, runtime::SessionEnvironment environment,
              std::unique_ptr<runtime::SessionStore> store, std::function<void(Event)> emit)
      : key_{launch.job_id(), launch.attempt()}, store_(std::move(store)), emit_(std::move(emit)) {
    environment.listener = this;
    environment.store = store_.get();
    executor_ = std::make_unique<runtime::SessionExecutor>(launch, environment);
  }

  void Lease(int64_t) override {}
  bool StopAt(int64_t) override { return false; }
  void Abort(const collectives::Failure& failure) override { executor_->Abort(failure); }
  void Command(const SessionCommand& command) override { executor_->Command(command); }
  int64_t finished_steps() const override { return executor_->done(); }
  int64_t begun_steps() const override { return executor_->done(); }

 private:
  void OnReady() override { emit_(TaskIsReady{key_}); }
  void OnDone(int64_t sequence) override { emit_(CommandIsDone{key_, sequence}); }
  void OnFailed(int64_t done, const collectives::Failure& failure) override {
    emit_(TaskHasFailed{key_, done, failure});
  }

  const TaskKey key_;
  const std::unique_ptr<runtime::SessionStore> store_;
  const std::function<void(Event)> emit_;
  std::unique_ptr<runtime::SessionExecutor> executor_;  // Last, because its threads use the other members.
};

}  // namespace xlad::worker
