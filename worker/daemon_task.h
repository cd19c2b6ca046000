// A task of the daemon: a runtime::TaskExecutor whose callbacks become events.
#pragma once

#include <functional>
#include <memory>

#include "runtime/task_executor.h"
#include "worker/worker_core.h"

namespace xlad::worker {

// Calls `emit` for each event, on the task's threads.
class DaemonTask final : public Task, private runtime::TaskListener {
 public:
  // Sets `environment.listener` and `environment.store`.
  DaemonTask(const LaunchTask& launch, runtime::TaskEnvironment environment, std::unique_ptr<runtime::TaskStore> store,
             std::function<void(Event)> emit)
      : key_{launch.job_id(), launch.attempt()}, store_(std::move(store)), emit_(std::move(emit)) {
    environment.listener = this;
    environment.store = store_.get();
    executor_ = std::make_unique<runtime::TaskExecutor>(launch, environment);
  }
  ~DaemonTask() override = default;

  void Lease(int64_t lease_until_step) override { executor_->Lease(lease_until_step); }
  bool StopAt(int64_t step) override { return executor_->StopAt(step); }
  void Abort(const collectives::Failure& failure) override { executor_->Abort(failure); }
  int64_t finished_steps() const override { return executor_->finished_steps(); }
  int64_t begun_steps() const override { return executor_->begun_steps(); }

 private:
  void OnReady() override { emit_(TaskIsReady{key_}); }
  void OnStep(const StepMetrics& metrics) override { emit_(TaskStepped{key_, metrics}); }
  void OnStopped(int64_t step) override { emit_(TaskHasStopped{key_, step}); }
  void OnFinished() override { emit_(TaskHasFinished{key_}); }
  void OnFailed(int64_t step, const collectives::Failure& failure) override {
    emit_(TaskHasFailed{key_, step, failure});
  }

  const TaskKey key_;
  const std::unique_ptr<runtime::TaskStore> store_;
  const std::function<void(Event)> emit_;
  std::unique_ptr<runtime::TaskExecutor> executor_;  // Last, because its threads use the other members.
};

}  // namespace xlad::worker
