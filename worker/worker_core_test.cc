// The worker's state machine on a virtual clock, with tasks that only record the calls they receive.
#include "worker/worker_core.h"

#include "base/random.h"
#include "worker/testing/worker_core_fixture.h"

namespace xlad::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  EXPECT_EQ(sent_[0].heartbeat().running(0).silent_size(), 0);
  task_->silent.emplace_back().set_worker_id("w2");
  task_->silent[0].set_silent_ms(1300);
  Later(500);
  ASSERT_EQ(sent_[0].heartbeat().running(0).silent_size(), 1);
  EXPECT_EQ(sent_[0].heartbeat().running(0).silent(0).worker_id(), "w2");
  EXPECT_EQ(sent_[0].heartbeat().running(0).silent(0).silent_ms(), 1300);
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

TEST_F(WorkerCoreTest, NothingIsLostWhileTheCoordinatorIsUnreachable) {
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

TEST_F(WorkerCoreTest, TheMetricsBeforeACheckpointAreSentBeforeItsShard) {
  Attach();
  Launch(1);
  Handle(TaskIsReady{{"job", 1}});
  Start(1000);
  for (int64_t step = 0; step < 3; ++step) Step(step);
  Handle(TaskWroteShard{{"job", 1}, 3, {}});
  ASSERT_EQ(sent_.size(), 2);
  EXPECT_THAT(SentSteps(), ElementsAre(0, 1, 2));
  EXPECT_TRUE(sent_[1].has_shard_written());
}

// The metrics of quick steps are sent as fast as the coordinator acknowledges them. A shard waits for the metrics of
// the steps before it, and the end of the task waits for everything else. The same is true after a reconnection.
TEST_F(WorkerCoreTest, ALimitedNumberOfMetricsIsNotAcknowledged) {
  Attach();
  Launch(1);
  Handle(TaskIsReady{{"job", 1}});
  Start(20'000);
  for (int64_t step = 0; step < 12'000; ++step) Step(step);
  int64_t sent = 0, acknowledged = 0;
  bool has_shard = false, has_end = false;
  const auto check = [&] {
    for (const WorkerMessage& message : sent_) {
      EXPECT_FALSE(has_end) << "the end is sent last";
      for (const StepMetrics& metrics : message.steps().metrics()) ASSERT_EQ(metrics.step(), sent++);
      EXPECT_TRUE(!message.has_shard_written() || sent >= 7'000) << sent;
      has_shard = has_shard || message.has_shard_written();
      has_end = has_end || message.has_finished();
    }
    EXPECT_LE(sent - acknowledged, 5'000);
  };
  Later(100), check();
  EXPECT_EQ(sent, 5'000);
  Handle(TaskWroteShard{{"job", 1}, 7'000, {}}), check();
  Handle(TaskHasFinished{{"job", 1}}), check();
  Later(100), check();
  EXPECT_EQ(sent, 5'000);
  Acknowledge((acknowledged += 1'000) - 1), check();
  Handle(Disconnected{});
  sent = acknowledged;
  Attach(), check();
  EXPECT_EQ(sent, 6'000);
  EXPECT_FALSE(has_shard || has_end);
  while (acknowledged < 8'000) Acknowledge((acknowledged += 1'000) - 1), check();
  EXPECT_EQ(sent, 12'000);
  EXPECT_TRUE(has_shard && has_end);
  Handle(Disconnected{});
  sent = acknowledged;
  has_shard = has_end = false;
  Attach(), check();
  EXPECT_EQ(sent, 12'000);
  EXPECT_TRUE(has_shard && has_end);
}

// Otherwise the coordinator would regard the shard as a success after the failure.
TEST_F(WorkerCoreTest, AFailureToSaveFollowsTheShardsBeforeIt) {
  Attach(/*takes_shard_failures=*/true);
  Launch(1);
  Handle(TaskIsReady{{"job", 1}});
  Start(20'000);
  for (int64_t step = 0; step < 7'000; ++step) Step(step);
  Handle(TaskWroteShard{{"job", 1}, 6'500, {}});
  Handle(TaskFailedToSave{{"job", 1}, 7'000, absl::ResourceExhaustedError("disk full")});
  EXPECT_THAT(sent_, IsEmpty()) << "the shard waits for metrics";
  Handle(Disconnected{});
  Attach(/*takes_shard_failures=*/true);
  EXPECT_EQ(Count(WorkerMessage::kShardFailed), 0);
  Acknowledge(1'999);
  ASSERT_EQ(sent_.size(), 4) << "2,000 metrics, the shard, the failure";
  EXPECT_TRUE(sent_[2].has_shard_written());
  EXPECT_TRUE(sent_[3].has_shard_failed());
  Handle(TaskFailedToSave{{"job", 1}, 7'000, absl::ResourceExhaustedError("disk full")});
  EXPECT_THAT(sent_, IsEmpty()) << "it was sent on this connection";
}

// A shard that cannot be stored is reported once for each step, reason and connection, to coordinators that support the
// message.
TEST_F(WorkerCoreTest, ShardsThatCannotBeStoredAreReported) {
  const auto attach = [this](bool takes_it) {
    Handle(Connected{});
    CoordinatorMessage message;
    message.mutable_registered()->set_takes_shard_failures(takes_it);
    Handle(message);
    return Count(WorkerMessage::kShardFailed);
  };
  attach(false);
  Launch(1);
  const absl::Status full = absl::ResourceExhaustedError("disk full");
  Handle(TaskFailedToSave{{"job", 1}, 10, full});
  EXPECT_EQ(Count(WorkerMessage::kShardFailed), 0);
  Handle(Disconnected{});
  EXPECT_EQ(attach(true), 1);
  EXPECT_EQ(sent_.back().shard_failed().step(), 10);
  EXPECT_EQ(sent_.back().shard_failed().generation(), 41);
  Handle(TaskFailedToSave{{"job", 1}, 10, full});
  EXPECT_EQ(Count(WorkerMessage::kShardFailed), 0);
  Handle(TaskFailedToSave{{"job", 1}, 20, full});
  EXPECT_EQ(Count(WorkerMessage::kShardFailed), 1);
  Handle(TaskFailedToSave{{"job", 1}, 20, absl::PermissionDeniedError("read-only")});
  EXPECT_EQ(Count(WorkerMessage::kShardFailed), 1);
  EXPECT_EQ(sent_.back().shard_failed().error_code(), static_cast<int>(absl::StatusCode::kPermissionDenied));
  for (int i = 0; i < 2; ++i) {
    Handle(TaskFailedToSave{{"job", 1}, 25, full, /*must_be_stored=*/true});
    EXPECT_EQ(Count(WorkerMessage::kShardFailed), 1) << "each failure of a state that must be stored is reported";
    EXPECT_TRUE(sent_.back().shard_failed().must_be_stored());
  }
  Handle(TaskWroteShard{{"job", 1}, 30, {}});
  Handle(Disconnected{});
  EXPECT_EQ(attach(true), 0);
}

TEST_F(WorkerCoreTest, UnansweredMessagesAreSentAgain) {
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
  EXPECT_THAT(sent_, IsEmpty()) << "the task was forgotten";
  Launch(2);
  EXPECT_EQ(alive_, 1);
  Launch(1);
  EXPECT_EQ(alive_, 1) << "a stale launch";
  Launch(3);
  EXPECT_EQ(alive_, 1) << "attempt 3 replaces attempt 2";
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

TEST_F(WorkerCoreTest, DrainsUntilTheCoordinatorLetsItExit) {
  Attach();
  Launch(1);
  Handle(StopRequested{});
  EXPECT_EQ(Count(WorkerMessage::kDraining), 1);
  Handle(StopRequested{});
  EXPECT_EQ(Count(WorkerMessage::kDraining), 0);
  Handle(Disconnected{});
  Attach();
  EXPECT_EQ(Count(WorkerMessage::kDraining), 1) << "repeated";
  CoordinatorMessage may_exit;
  may_exit.mutable_may_exit();
  Handle(may_exit);
  ASSERT_TRUE(exit_.has_value());
  EXPECT_TRUE(exit_->ok());
}

TEST_F(WorkerCoreTest, DrainsWithoutACoordinator) {
  Handle(StopRequested{});
  Later(50);
  ASSERT_TRUE(exit_.has_value()) << "no task runs, and there is no coordinator to ask";
  EXPECT_TRUE(exit_->ok());
}

TEST_F(WorkerCoreTest, TheGracePeriodLimitsADrain) {
  Attach();
  Launch(1);
  Handle(StopRequested{});
  Later(4999);
  EXPECT_FALSE(exit_.has_value());
  Later(1);
  ASSERT_TRUE(exit_.has_value());
  EXPECT_THAT(std::string(exit_->message()), HasSubstr("1 task did not stop within the grace period of 5000 ms"));
}

TEST_F(WorkerCoreTest, ADrainedWorkerSaysWhetherItsWorkContinuesElsewhere) {
  Attach();
  Launch(1);
  Handle(StopRequested{});
  Handle(TaskHasStopped{{"job", 1}, 8});
  ForgetJob();
  CoordinatorMessage may_exit;
  may_exit.mutable_may_exit();
  Handle(may_exit);
  ASSERT_TRUE(exit_.has_value() && exit_->ok());
  EXPECT_TRUE(moved_);
}

TEST_F(WorkerCoreTest, ADrainedWorkerWhoseTasksHaveFinishedIsIdle) {
  Attach();
  Launch(1);
  Handle(StopRequested{});
  Handle(TaskHasFinished{{"job", 1}});
  ForgetJob();
  Handle(Disconnected{});
  Later(50);
  ASSERT_TRUE(exit_.has_value() && exit_->ok());
  EXPECT_FALSE(moved_);
}

TEST_F(WorkerCoreTest, WithoutACoordinatorTasksContinueForTheGracePeriod) {
  Attach();
  Launch(1);
  Handle(Disconnected{});
  Handle(StopRequested{});
  Later(4999);
  EXPECT_FALSE(exit_.has_value()) << "the worker may reach the coordinator again";
  EXPECT_EQ(task_->aborted, "");
  Attach();
  EXPECT_EQ(Count(WorkerMessage::kDraining), 1);
  Handle(Disconnected{});
  Later(1);
  ASSERT_TRUE(exit_.has_value());
  EXPECT_THAT(std::string(exit_->message()), HasSubstr("the coordinator could not be reached"));
}

TEST_F(WorkerCoreTest, EveryMessageNamesIncarnationAndGeneration) {
  Attach();
  Launch(1);
  Handle(TaskIsReady{{"job", 1}});
  EXPECT_EQ(sent_[0].incarnation(), 99);
  EXPECT_EQ(sent_[0].ready().generation(), 41);
  Step(0);
  Handle(TaskHasStopped{{"job", 1}, 1});
  ASSERT_EQ(sent_.size(), 2);
  EXPECT_EQ(sent_[0].steps().generation(), 41);
  EXPECT_EQ(sent_[1].stopped().generation(), 41);
  EXPECT_EQ(sent_[1].incarnation(), 99);
}

TEST_F(WorkerCoreTest, MessagesOfEarlierTermsAndGenerationsAreIgnored) {
  Attach();
  Launch(1);
  CoordinatorMessage renew;
  renew.mutable_renew()->set_job_id("job");
  renew.mutable_renew()->set_attempt(1);
  const auto lease_after = [&](int64_t lease, int64_t term, int64_t generation) {
    renew.mutable_renew()->set_lease_until_step(lease);
    renew.mutable_renew()->set_generation(generation);
    renew.set_term(term);
    Handle(renew);
    return task_->lease;
  };
  EXPECT_EQ(lease_after(10, 5, 41), 10);
  EXPECT_EQ(lease_after(20, 4, 41), 10) << "an earlier coordinator";
  EXPECT_EQ(lease_after(20, 5, 40), 10) << "an earlier generation";
  EXPECT_EQ(lease_after(20, 0, 0), 20) << "a coordinator of the previous version";
  EXPECT_EQ(lease_after(30, 6, 41), 30);
  EXPECT_EQ(lease_after(40, 5, 41), 30);
  CoordinatorMessage abort;
  abort.set_term(5);
  abort.mutable_abort()->set_job_id("job");
  abort.mutable_abort()->set_attempt(1);
  Handle(abort);
  EXPECT_EQ(alive_, 1);
}

TEST_F(WorkerCoreTest, ARefusedWorkerEnds) {
  Handle(Connected{});
  CoordinatorMessage registered;
  registered.mutable_registered()->set_refused("found protocol 1, expected 2 or 3");
  Handle(registered);
  ASSERT_TRUE(exit_.has_value());
  EXPECT_EQ(exit_->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(exit_->message()), HasSubstr("found protocol 1, expected 2 or 3"));
}

TEST_F(WorkerCoreTest, ATaskWaitsWhenTooManyMetricsAreKept) {
  WorkerCoreOptions options = Options();
  options.max_kept_metrics = 10;
  WorkerCore core(options, [this](const LaunchTask&) { return MakeTask(); });
  const auto handle = [&](Event event) { Take(core.Handle(std::move(event), 0)); };
  CoordinatorMessage launch, start;
  launch.mutable_launch()->set_job_id("job");
  handle(launch);
  for (int64_t step = 0; step < 10; ++step) {
    StepMetrics metrics;
    metrics.set_step(step);
    handle(TaskStepped{{"job", 0}, metrics});
  }
  start.mutable_start()->set_job_id("job");
  start.mutable_start()->set_lease_until_step(1000);
  handle(start);
  EXPECT_EQ(task_->lease, 10) << "no more steps than can be kept";
  CoordinatorMessage acknowledge;
  acknowledge.mutable_acknowledge()->set_job_id("job");
  acknowledge.mutable_acknowledge()->set_through_step(6);
  handle(acknowledge);
  EXPECT_EQ(task_->lease, 17);
  acknowledge.mutable_acknowledge()->set_through_step(9);
  handle(acknowledge);
  EXPECT_EQ(task_->lease, 1000);
  Take(core.Shutdown());
}

// The coordinator repeats a shorter lease while the task is too far ahead of its peers, and then sends the longest one.
// If the coordinator ends, the task continues.
TEST_F(WorkerCoreTest, AShorterLeaseIsAPauseThatALongerOneOrTimeEnds) {
  Attach();
  Launch(1);
  Handle(TaskIsReady{{"job", 1}});
  Start(1000);
  const auto renew = [&](int64_t lease) {
    CoordinatorMessage message;
    message.mutable_renew()->set_job_id("job");
    message.mutable_renew()->set_attempt(1);
    message.mutable_renew()->set_lease_until_step(lease);
    Handle(message);
  };
  renew(500);
  EXPECT_EQ(task_->lease, 500);
  Later(2000);
  renew(700);
  EXPECT_EQ(task_->lease, 700) << "the peers have continued";
  Later(2000);
  EXPECT_EQ(task_->lease, 700) << "the pause was repeated";
  renew(1000);
  EXPECT_EQ(task_->lease, 1000) << "the longest lease ends the pause";
  renew(700);
  renew(2000);
  EXPECT_EQ(task_->lease, 2000) << "a longer lease ends the pause";
  renew(700);
  Handle(Disconnected{});
  Later(2900);
  EXPECT_EQ(task_->lease, 700);
  Later(200);
  EXPECT_EQ(task_->lease, 2000);
}

// Random orders of events and messages do not crash the worker, and every task is dropped in the end.
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

// Traces are sent with the clock samples that were taken since the previous trace. Without a coordinator, a limited
// number of traces is kept, including the first one, which names the instructions. An older coordinator gets no traces.
TEST_F(WorkerCoreTest, TracesAreSentWithClockSamples) {
  const auto attach = [this](bool answers_clock) {
    Handle(Connected{});
    CoordinatorMessage message;
    message.mutable_registered()->set_answers_clock(answers_clock);
    return Handle(message);
  };
  const auto trace = [this](int64_t step) {
    TaskTrace trace;
    if (step == 0) trace.mutable_program()->add_instructions();
    trace.add_steps()->set_step(step);
    return Handle(TaskTraced{{"job", 1}, trace});
  };
  const auto sample = [this](int64_t offset) {
    ClockSample sample;
    sample.set_offset_ns(offset);
    Handle(ClockSampled{sample});
  };
  attach(false);
  Launch(1);
  EXPECT_TRUE(trace(0).empty());
  Handle(Disconnected{});
  for (int64_t step = 1; step < 1000; ++step) EXPECT_TRUE(trace(step).empty());
  sample(7);
  sample(8);
  std::vector<TaskTrace> sent;
  for (const WorkerMessage& message : attach(true)) {
    if (message.has_trace()) sent.push_back(message.trace());
  }
  ASSERT_GT(sent.size(), 100u);
  EXPECT_LT(sent.size(), 300u);
  EXPECT_TRUE(sent[0].has_program());
  EXPECT_EQ(sent[0].generation(), 41);
  EXPECT_EQ(sent[0].clock_size(), 2);
  EXPECT_EQ(sent[1].clock_size(), 0);
  EXPECT_EQ(sent.back().steps(0).step(), 999);
  sample(9);
  ASSERT_EQ(trace(1000).size(), 1u);
  EXPECT_EQ(sent_[0].trace().clock_size(), 1);
  EXPECT_EQ(sent_[0].trace().clock(0).offset_ns(), 9);
  ForgetJob();
  EXPECT_TRUE(trace(1001).empty());
}

TEST_F(WorkerCoreTest, ASessionReportsItsAddressAndReceivesThatOfTheFirstWorker) {
  Attach();
  CoordinatorMessage launch;
  launch.mutable_launch()->set_job_id("session");
  launch.mutable_launch()->set_attempt(1);
  launch.mutable_launch()->mutable_spec()->set_session(true);
  Handle(launch);
  Handle(TaskIsReady{{"session", 1}, "127.0.0.1:4711", "certificate"});
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].ready().session_address(), "127.0.0.1:4711");
  EXPECT_EQ(sent_[0].ready().session_authority(), "certificate");
  Handle(Disconnected{});
  Attach();  // The session has not been started, so the coordinator may not have received that it is ready.
  const auto is_ready = [](const WorkerMessage& message) {
    return message.has_ready() && message.ready().session_address() == "127.0.0.1:4711";
  };
  EXPECT_EQ(std::count_if(sent_.begin(), sent_.end(), is_ready), 1);
  CoordinatorMessage start;
  start.mutable_start()->set_job_id("session");
  start.mutable_start()->set_attempt(1);
  start.mutable_start()->add_places()->set_address("127.0.0.1:4712");
  Handle(start);
  EXPECT_THAT(task_->places, ElementsAre("127.0.0.1:4712"));
  Handle(Disconnected{});
  Attach();
  EXPECT_EQ(std::count_if(sent_.begin(), sent_.end(), is_ready), 0);
}

}  // namespace
}  // namespace xlad::worker
