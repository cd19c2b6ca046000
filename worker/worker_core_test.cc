// The worker's state machine on a virtual clock, with tasks that only record the calls they receive.
#include "worker/worker_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

namespace xlad::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct FakeTask final : public Task {
  explicit FakeTask(int64_t* alive) : alive(alive) { ++*alive; }
  ~FakeTask() override { --*alive; }
  void Lease(int64_t until) override { lease = std::max(lease, until); }
  bool StopAt(int64_t step) override {
    if (step < begun) return false;
    stop = step;
    return true;
  }
  void Abort(const collectives::Failure& failure) override { aborted = std::string(failure.status.message()); }
  void Command(const SessionCommand& command) override { commands.push_back(command.sequence()); }
  int64_t finished_steps() const override { return begun; }
  int64_t begun_steps() const override { return begun; }

  int64_t* const alive;
  int64_t lease = -1, stop = -1, begun = 0;
  std::vector<int64_t> commands;
  std::string aborted;
};

class WorkerCoreTest : public ::testing::Test {
 protected:
  WorkerCoreTest() : core_(Options(), [this](const LaunchTask&) { return MakeTask(); }) {
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
      if (auto* exit = std::get_if<Exit>(&action)) exit_ = exit->status;
      if (auto* drop = std::get_if<DropTask>(&action)) {
        dropped_ = static_cast<FakeTask*>(drop->task.get())->aborted;
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

  void Attach() {
    Handle(Connected{});
    CoordinatorMessage message;
    message.mutable_registered();
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
    Handle(message);
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
  std::string dropped_ = "-";
};

TEST_F(WorkerCoreTest, RegistersAndSendsHeartbeats) {
  ASSERT_EQ(Handle(Connected{}).size(), 1);
  EXPECT_EQ(sent_[0].register_().worker_id(), "w1");
  EXPECT_THAT(Later(5000), IsEmpty()) << "not before it is registered";
  CoordinatorMessage registered;
  registered.mutable_registered();
  EXPECT_THAT(Handle(registered), IsEmpty());
  EXPECT_THAT(Later(400), IsEmpty());
  EXPECT_EQ(Later(100).size(), 1);
  EXPECT_TRUE(sent_[0].has_heartbeat());
  Launch(1);
  task_->begun = 17;
  Later(500);
  ASSERT_EQ(sent_.size(), 1);
  ASSERT_EQ(sent_[0].heartbeat().running_size(), 1);
  EXPECT_EQ(sent_[0].heartbeat().running(0).step(), 17);
  EXPECT_EQ(sent_[0].heartbeat().running(0).generation(), 41);
}

TEST_F(WorkerCoreTest, OneTaskFromLaunchToForget) {
  Attach();
  Launch(1);
  EXPECT_EQ(alive_, 1);
  Launch(1);  // A repeated launch has no effect.
  EXPECT_EQ(alive_, 1);
  Handle(TaskIsReady{{"job", 1}});
  EXPECT_EQ(Count(WorkerMessage::kReady), 1);
  Start(10);
  EXPECT_EQ(task_->lease, 10);
  CoordinatorMessage renew;
  renew.mutable_renew()->set_job_id("job");
  renew.mutable_renew()->set_attempt(1);
  renew.mutable_renew()->set_lease_until_step(20);
  Handle(renew);
  EXPECT_EQ(task_->lease, 20);
  Step(0);
  Step(1);
  Later(100);
  EXPECT_THAT(SentSteps(), ElementsAre(0, 1));
  Later(100);
  EXPECT_THAT(SentSteps(), IsEmpty()) << "sent once on a connection";
  Step(2);
  Handle(TaskHasFinished{{"job", 1}});
  ASSERT_EQ(sent_.size(), 2) << "the last metrics, then the end";
  EXPECT_THAT(SentSteps(), ElementsAre(2));
  EXPECT_TRUE(sent_[1].has_finished());
  ForgetJob();
  EXPECT_EQ(alive_, 0);
  EXPECT_EQ(dropped_, "") << "not aborted";
}

TEST_F(WorkerCoreTest, WhileTheCoordinatorIsAwayNothingIsLost) {
  Attach();
  Launch(1);
  Handle(TaskIsReady{{"job", 1}});
  Start(1000);
  for (int64_t step = 0; step < 5; ++step) Step(step);
  Later(100);
  EXPECT_THAT(SentSteps(), ElementsAre(0, 1, 2, 3, 4));
  Acknowledge(1);
  Handle(Disconnected{});
  for (int64_t step = 5; step < 8; ++step) Step(step);
  EXPECT_THAT(Later(1000), IsEmpty());
  EXPECT_EQ(task_->aborted, "");
  EXPECT_EQ(alive_, 1) << "the task continues";
  Handle(Connected{});
  ASSERT_EQ(sent_.size(), 1);
  EXPECT_EQ(sent_[0].register_().running(0).step(), 8);
  CoordinatorMessage registered;
  registered.mutable_registered();
  Handle(registered);
  EXPECT_THAT(SentSteps(), ElementsAre(2, 3, 4, 5, 6, 7)) << "all that is not acknowledged";
  EXPECT_EQ(Count(WorkerMessage::kReady), 0) << "it was started";
}

TEST_F(WorkerCoreTest, WhatWasNotAnsweredIsSaidAgain) {
  Attach();
  Launch(1);
  Handle(Disconnected{});
  Handle(TaskIsReady{{"job", 1}});
  Attach();
  EXPECT_EQ(Count(WorkerMessage::kReady), 1);
  Handle(Disconnected{});
  Handle(TaskHasFailed{{"job", 1}, 6, {absl::UnavailableError("lost device 3"), "w2"}});
  for (int round = 0; round < 2; ++round) {
    Attach();
    ASSERT_EQ(Count(WorkerMessage::kFailed), 1);
    EXPECT_EQ(sent_.back().failed().step(), 6);
    EXPECT_EQ(sent_.back().failed().error(), "lost device 3");
    EXPECT_EQ(sent_.back().failed().suspect_worker(), "w2");
    EXPECT_EQ(sent_.back().failed().error_code(), static_cast<int>(absl::StatusCode::kUnavailable));
    Handle(Disconnected{});
  }
  Attach();
  ForgetJob();
  Handle(Disconnected{});
  Attach();
  EXPECT_EQ(Count(WorkerMessage::kFailed), 0);
}

TEST_F(WorkerCoreTest, AbortCleansUpAndTheNextAttemptRuns) {
  Attach();
  Launch(1);
  Abort("worker w2 (host h, pid 7) was lost at step 12");
  EXPECT_THAT(dropped_, HasSubstr("worker w2 (host h, pid 7) was lost at step 12"));
  EXPECT_EQ(alive_, 0);
  Handle(TaskHasFailed{{"job", 1}, 12, {absl::CancelledError("aborted"), ""}});
  EXPECT_THAT(sent_, IsEmpty()) << "of a task that is forgotten";
  Launch(2);
  EXPECT_EQ(alive_, 1);
  Launch(1);
  EXPECT_EQ(alive_, 1) << "a stale launch";
  Launch(3);
  EXPECT_EQ(alive_, 1) << "takes the place of attempt 2";
  EXPECT_THAT(dropped_, HasSubstr("a later attempt"));
  Launch(1, "other");
  EXPECT_EQ(alive_, 2);
}

TEST_F(WorkerCoreTest, StopsAreAnsweredAndMayBeReplaced) {
  Attach();
  Launch(1);
  Start(100);
  Step(4);
  TaskStopAnswer answer = StopAt(3);
  EXPECT_FALSE(answer.accepted());
  EXPECT_EQ(answer.current(), 5);
  answer = StopAt(8);
  EXPECT_TRUE(answer.accepted());
  EXPECT_EQ(answer.step(), 8);
  Handle(TaskHasStopped{{"job", 1}, 8});
  EXPECT_EQ(Count(WorkerMessage::kStopped), 1);
  answer = StopAt(10);
  EXPECT_TRUE(answer.accepted());
  Handle(Disconnected{});
  Attach();
  EXPECT_EQ(Count(WorkerMessage::kStopped), 0) << "it is no longer stopped before step 8";
  Handle(TaskHasStopped{{"job", 1}, 10});
  EXPECT_EQ(sent_.back().stopped().step(), 10);
  Handle(TaskHasFailed{{"job", 1}, 10, {absl::InternalError("x"), ""}});
  EXPECT_FALSE(StopAt(20).accepted()) << "a task that has ended does not stop";
}

TEST_F(WorkerCoreTest, DrainsByTheCoordinator) {
  Attach();
  Launch(1);
  Handle(StopRequested{});
  EXPECT_EQ(Count(WorkerMessage::kDraining), 1);
  Handle(StopRequested{});
  EXPECT_EQ(Count(WorkerMessage::kDraining), 0);
  Handle(Disconnected{});
  Attach();
  EXPECT_EQ(Count(WorkerMessage::kDraining), 1) << "said again";
  CoordinatorMessage may_exit;
  may_exit.mutable_may_exit();
  Handle(may_exit);
  ASSERT_TRUE(exit_.has_value());
  EXPECT_TRUE(exit_->ok());
}

TEST_F(WorkerCoreTest, DrainsWithoutACoordinator) {
  Handle(StopRequested{});
  Later(50);
  ASSERT_TRUE(exit_.has_value()) << "nothing runs and no one to ask";
  EXPECT_TRUE(exit_->ok());
}

TEST_F(WorkerCoreTest, TheGraceLimitsADrain) {
  Attach();
  Launch(1);
  Handle(StopRequested{});
  Later(4999);
  EXPECT_FALSE(exit_.has_value());
  Later(1);
  ASSERT_TRUE(exit_.has_value());
  EXPECT_THAT(std::string(exit_->message()), HasSubstr("1 tasks did not stop within the grace"));
}

// Random orders of events and messages: no crash, and on each connection no metrics are lost or sent twice.
TEST_F(WorkerCoreTest, RandomEvents) {
  const std::unique_ptr<Random> random = SeededRandom(99);
  ::testing::internal::CaptureStderr();  // A log line for each failure.
  for (int i = 0; i < 20000; ++i) {
    const int64_t attempt = random->Below(3);
    const TaskKey key{"job", attempt};
    CoordinatorMessage message;
    switch (random->Below(12)) {
      case 0:
        Handle(Connected{});
        break;
      case 1:
        Handle(Disconnected{});
        break;
      case 2:
        Later(static_cast<int64_t>(random->Below(300)));
        break;
      case 3:
        Launch(attempt);
        break;
      case 4:
        Handle(TaskIsReady{key});
        break;
      case 5:
        Handle(TaskStepped{key, {}});
        break;
      case 6:
        Handle(TaskHasStopped{key, 3});
        break;
      case 7:
        Handle(TaskHasFinished{key});
        break;
      case 8:
        Handle(TaskHasFailed{key, 1, {absl::CancelledError("x"), ""}});
        break;
      case 9:
        message.mutable_registered();
        Handle(message);
        break;
      case 10:
        ForgetJob();
        break;
      default:
        Acknowledge(static_cast<int64_t>(random->Below(9)));
    }
  }
  ::testing::internal::GetCapturedStderr();
}

TEST_F(WorkerCoreTest, SessionCommandsAreCarriedOutOnceAndAnswersAreRepeated) {
  Attach();
  Launch(1);
  const auto command = [&](int64_t sequence) {
    CoordinatorMessage message;
    message.mutable_session()->set_job_id("job");
    message.mutable_session()->set_attempt(1);
    message.mutable_session()->set_sequence(sequence);
    Handle(message);
  };
  for (int64_t sequence : {1, 2, 2, 1, 3}) command(sequence);
  EXPECT_THAT(task_->commands, ElementsAre(1, 2, 3));
  Handle(CommandIsDone{{"job", 1}, 1});
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].session_answer().sequence(), 1);
  Handle(Disconnected{});
  Handle(CommandIsDone{{"job", 1}, 2});
  EXPECT_THAT(sent_, IsEmpty());
  Attach();
  int64_t answered = 0;
  for (const WorkerMessage& message : sent_) {
    if (message.has_session_answer()) answered = message.session_answer().sequence();
  }
  EXPECT_EQ(answered, 2) << "an answer includes those before it";
  command(5);  // Command 4 is missing: the session cannot continue.
  EXPECT_THAT(task_->aborted, HasSubstr("found session command 5, expected 4"));
}

}  // namespace
}  // namespace xlad::worker
