// The worker's state machine on a virtual clock, with tasks that only record the calls they receive: the fixture of its
// tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/worker_core.h"

namespace xlad::worker {

struct FakeTask final : public Task {
  explicit FakeTask(int64_t* alive) : alive(alive) { ++*alive; }
  ~FakeTask() override { --*alive; }
  void Lease(int64_t until) override { lease = until; }
  void StopAt(int64_t step) override { stop = step; }
  void Abort(const collectives::Failure& failure) override { aborted = std::string(failure.status.message()); }
  void Start(const StartTask& message) override {
    for (const SessionPlace& place : message.places()) places.push_back(place.address());
  }
  int64_t finished_steps() const override { return begun; }
  std::vector<SilentPeer> silent_peers() const override { return silent; }

  int64_t* const alive;
  int64_t lease = -1, stop = -1, begun = 0;
  std::vector<std::string> places;  // Where sessions are served.
  std::vector<SilentPeer> silent;
  std::string aborted;
};

class WorkerCoreTest : public ::testing::Test {
 protected:
  explicit WorkerCoreTest(const WorkerCoreOptions& options = Options())
      : core_(options, [this](const LaunchTask&) { return MakeTask(); }) {
    SetLogLevel(LogLevel::kError);
  }
  ~WorkerCoreTest() override {
    Take(core_.Shutdown());
    EXPECT_EQ(alive_, 0) << "every task is dropped in the end";
    SetLogLevel(LogLevel::kInfo);
  }

  static WorkerCoreOptions Options() {
    WorkerCoreOptions options;
    options.identity.set_worker_id("w1");
    options.identity.set_devices(2);
    options.identity.set_incarnation(99);
    options.grace_ms = 5000;
    return options;
  }

  std::unique_ptr<Task> MakeTask() {
    auto task = std::make_unique<FakeTask>(&alive_);
    task_ = task.get();
    return task;
  }

  // Records messages and exits, and destroys the tasks of DropTask actions.
  void Take(Actions actions) {
    sent_.clear();
    for (Action& action : actions) {
      if (auto* send = std::get_if<Send>(&action)) sent_.push_back(std::move(send->message));
      if (auto* exit = std::get_if<Exit>(&action)) exit_ = exit->status, moved_ = exit->work_moved;
      if (auto* drop = std::get_if<DropTask>(&action)) {
        dropped_ = dynamic_cast<FakeTask&>(*drop->task).aborted;
      }
    }
  }
  const std::vector<WorkerMessage>& Handle(Event event) {
    Take(core_.Handle(std::move(event), clock_.NowNs()));
    return sent_;
  }
  const std::vector<WorkerMessage>& Later(int64_t ms) {
    clock_.Advance(ms * kNsPerMs);
    return Handle(Tick{});
  }

  void Attach(bool takes_shard_failures = false) {
    Handle(Connected{});
    CoordinatorMessage message;
    message.mutable_registered()->set_takes_shard_failures(takes_shard_failures);
    Handle(message);
  }
  void Launch(int64_t attempt, const std::string& job = "job") {
    CoordinatorMessage message;
    message.mutable_launch()->set_job_id(job);
    message.mutable_launch()->set_attempt(attempt);
    message.mutable_launch()->set_generation(40 + attempt);
    Handle(message);
  }
  void Start(int64_t lease) {
    CoordinatorMessage message;
    message.mutable_start()->set_job_id("job");
    message.mutable_start()->set_attempt(1);
    message.mutable_start()->set_lease_until_step(lease);
    Handle(message);
  }
  void Abort(const std::string& reason) {
    CoordinatorMessage message;
    message.mutable_abort()->set_job_id("job");
    message.mutable_abort()->set_attempt(1);
    message.mutable_abort()->set_reason(reason);
    Handle(message);
  }
  void ForgetJob() {
    CoordinatorMessage message;
    message.mutable_forget()->set_job_id("job");
    message.mutable_forget()->set_attempt(1);
    Handle(message);
  }
  TaskStopAnswer StopAt(int64_t step) {
    CoordinatorMessage message;
    message.mutable_stop_at()->set_job_id("job");
    message.mutable_stop_at()->set_attempt(1);
    message.mutable_stop_at()->set_step(step);
    task_->stop = -1;
    Handle(message);
    if (task_->stop == step) Handle(TaskAnsweredStop{{"job", 1}, step, step >= task_->begun, task_->begun});
    for (const WorkerMessage& sent : sent_) {
      if (sent.has_stop_answer()) return sent.stop_answer();
    }
    ADD_FAILURE() << "no answer";
    return {};
  }
  void Step(int64_t step) {
    StepMetrics metrics;
    metrics.set_step(step);
    task_->begun = step + 1;
    Handle(TaskStepped{{"job", 1}, metrics});
  }
  void Acknowledge(int64_t through) {
    CoordinatorMessage message;
    message.mutable_acknowledge()->set_job_id("job");
    message.mutable_acknowledge()->set_attempt(1);
    message.mutable_acknowledge()->set_through_step(through);
    Handle(message);
  }
  // The steps of all metrics in the messages that were sent last.
  std::vector<int64_t> SentSteps() const {
    std::vector<int64_t> steps;
    for (const WorkerMessage& message : sent_) {
      for (const StepMetrics& metrics : message.steps().metrics()) steps.push_back(metrics.step());
    }
    return steps;
  }
  int Count(WorkerMessage::MessageCase kind) const {
    return static_cast<int>(
        std::count_if(sent_.begin(), sent_.end(), [&](const auto& m) { return m.message_case() == kind; }));
  }

  int64_t alive_ = 0;
  FakeTask* task_ = nullptr;
  ManualClock clock_;
  WorkerCore core_;
  std::vector<WorkerMessage> sent_;
  std::optional<absl::Status> exit_;
  bool moved_ = false;
  std::string dropped_ = "-";
};

}  // namespace xlad::worker
