// The coordinator: submission, placement, detection of faults, restarts.
#include <cmath>
#include <functional>
#include <set>

#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;

TEST(Coordinator, SubmissionIsIdempotentAndDurable) {
  Cluster cluster;
  const std::string id = cluster.Submit(4);
  EXPECT_EQ(cluster.Submit(4), id);
  EXPECT_THAT(cluster.Submit(8), HasSubstr("another spec"));
  cluster.Restart();
  EXPECT_EQ(cluster.Submit(4), id);
  EXPECT_EQ(cluster.CountJobs(), 1u);
}

TEST(Coordinator, AfterAFailedAppendNoActionIsCarriedOutAndNoJobIsLost) {
  for (const bool ambiguous : {false, true}) {
    Cluster cluster;
    const std::string id = cluster.Submit(4);
    cluster.store.fail_next_appends = 1;
    cluster.store.failures_are_ambiguous = ambiguous;
    EXPECT_EQ(cluster.Submit(2, "other"), "log failed");
    cluster.Reopen();
    EXPECT_EQ(cluster.CountJobs(), ambiguous ? 2u : 1u);
    const std::string other = cluster.Submit(2, "other");  // The client repeats its request.
    EXPECT_TRUE(other.starts_with("job-"));
    EXPECT_EQ(cluster.CountJobs(), 2u);
    EXPECT_EQ(cluster.Submit(4), id);
  }
}

TEST(Coordinator, EachOpeningOfTheLogBeginsATerm) {
  Cluster cluster;
  EXPECT_EQ(cluster.coordinator().Status().term(), 1);
  cluster.Restart();
  EXPECT_EQ(cluster.coordinator().Status().term(), 2);
  cluster.Register(1, "a");
  ASSERT_FALSE(cluster.sent.empty());
  EXPECT_EQ(cluster.sent.back().message.term(), 2);
}

TEST(Coordinator, ANearlyFullDiskRefusesSubmissionsButRecordsStepsOfRunningJobs) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Do([](CoordinatorCore& c) { c.OnFreeBytes(1 << 20); });
  EXPECT_THAT(cluster.Submit(2, "other"), HasSubstr("found 1 MiB free, expected 64 or more"));
  EXPECT_FALSE(cluster.coordinator().Status().accepts_jobs());
  cluster.Steps(1, job, 0, 10);
  EXPECT_EQ(cluster.Status(job).step(), 10);
  cluster.Do([](CoordinatorCore& c) { c.OnFreeBytes(int64_t{1} << 40); });
  EXPECT_TRUE(cluster.Submit(2, "other").starts_with("job-"));
}

TEST(Coordinator, RunsAJobToItsEnd) {
  Cluster cluster;
  JobSpec spec = cluster.Spec(4);
  spec.set_keep_final_state(false);
  const std::string job = cluster.RunningJob(spec);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_start(); }), 2);
  cluster.Steps(1, job, 0, 10);
  EXPECT_EQ(cluster.Status(job).step(), 10);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_acknowledge(); }), 1);
  WorkerMessage message;
  cluster.Name(job, message.mutable_finished());
  for (const int64_t connection : {1, 2}) cluster.Handle(connection, message);
  EXPECT_EQ(cluster.Status(job).state(), SUCCEEDED);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_forget(); }), 2);
}

TEST(Coordinator, ReportedLossOfADisconnectedWorkerEndsTheAttemptAtOnce) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(/*attempts=*/1);
  cluster.Steps(1, job, 0, 7);
  cluster.Gone(2);
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);  // A closed connection alone does not end the attempt.
  cluster.Fail(1, job, 7, absl::UnavailableError("peer b is gone"), "b");
  const JobStatus status = cluster.Status(job);
  EXPECT_EQ(status.state(), FAILED);
  EXPECT_EQ(status.reason(), "worker b (ranks 2, 3; host host, pid 102) was lost at step 7: its connections closed");
  EXPECT_EQ(status.workers(1).state(), "lost");
  EXPECT_EQ(status.workers(0).state(), "alive");
}

TEST(Coordinator, AReconnectedWorkerContinues) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Beat(2, job, 5);
  cluster.Gone(2);
  cluster.RunFor(9000, {1});
  cluster.Register(3, "b", 1, {cluster.Task(job, 50)});
  cluster.RunFor(5000, {1, 3});
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  EXPECT_EQ(cluster.Status(job).attempt(), 1);
}

TEST(Coordinator, SilentWorkerIsSuspectThenLost) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(/*attempts=*/1);
  const auto silences = [&] {
    std::vector<JobLogResponse::Event> found;
    for (const JobEvent& event : cluster.store.events) {
      if (event.has_worker_silent()) found.push_back(ForClients(event));
    }
    return found;
  };
  cluster.RunFor(2900, {1});
  EXPECT_EQ(silences().size(), 0);
  cluster.RunFor(1100, {1});
  ASSERT_EQ(silences().size(), 1) << "an event names the silent worker when it becomes suspect";
  EXPECT_EQ(silences()[0].worker(), "b");
  EXPECT_EQ(silences()[0].attempt(), 1);
  EXPECT_THAT(silences()[0].text(), HasSubstr("worker b (ranks 2, 3; host host, pid 102) is silent at step 0: no "
                                              "heartbeat for 3000 ms"));
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  EXPECT_EQ(cluster.Status(job).workers(1).state(), "suspect");
  cluster.Beat(2, job, 1);
  EXPECT_EQ(cluster.Status(job).workers(1).state(), "alive");
  cluster.RunFor(10'100, {1});
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("worker b (ranks 2, 3; host host, pid 102) was lost"));
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("no heartbeat for 10000 ms"));
  EXPECT_EQ(silences().size(), 1) << "one event for each worker of an attempt";
}

TEST(Coordinator, APauseOfTheCoordinatorIsNotSilenceOfTheWorkers) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(/*attempts=*/1);
  cluster.clock.Advance(int64_t{60'000} * kNsPerMs);  // No ticks occur in between: the process was stopped.
  cluster.Advance(200);
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  EXPECT_EQ(cluster.Status(job).workers(1).state(), "alive");
}

TEST(Coordinator, RestartsWithoutLimitAndWithPauses) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  int64_t attempt = 1;
  for (int failure = 1; failure <= 6; ++failure) {
    cluster.Fail(1, job, 3, absl::UnavailableError("the network broke"), "");
    EXPECT_EQ(cluster.Status(job).failures(), failure);
    if (failure > 1) {
      EXPECT_EQ(cluster.Status(job).state(), PENDING);
      EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("begins after a pause of"));
      cluster.RunFor(int64_t{1100} << (failure - 2), {1, 2});
    }
    EXPECT_EQ(cluster.Status(job).state(), STARTING);
    EXPECT_EQ(cluster.Status(job).attempt(), ++attempt);
    cluster.Start(job, {1, 2});
  }
  cluster.CommitCheckpoint(job, 50);
  EXPECT_EQ(cluster.Status(job).failures(), 0) << "a new checkpoint is progress";
}

TEST(Coordinator, AttemptsCountFailuresWithoutANewCheckpoint) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(/*attempts=*/2);
  for (int round = 0; round < 4; ++round) {
    cluster.CommitCheckpoint(job, 10 * (round + 1));
    cluster.Fail(1, job, 10 * (round + 1) + 3, absl::UnavailableError("the network broke"), "");
    cluster.Start(job, {1, 2});
  }
  cluster.Fail(1, job, 44, absl::UnavailableError("the network broke"), "");
  EXPECT_EQ(cluster.Status(job).state(), FAILED);
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("2 attempts in a row failed without a new checkpoint"));
}

TEST(Coordinator, TheSameProgramErrorTwiceAtOneStepEndsTheJob) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  const auto fail = [&](int64_t step) {
    cluster.Fail(1, job, step, absl::InvalidArgumentError("index out of range"), "");
  };
  fail(5);
  cluster.Start(job, {1, 2});
  fail(6);  // The error occurs at another step.
  cluster.RunFor(1200, {1, 2});
  cluster.Start(job, {1, 2});
  fail(6);
  EXPECT_EQ(cluster.Status(job).state(), FAILED);
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("same error at the same step"));
}

TEST(Coordinator, AnExitedProcessEndsItsAttemptAtOnce) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  WorkerMessage message;
  cluster.Name(job, message.mutable_exited());
  message.mutable_exited()->set_pid(77);
  message.mutable_exited()->set_signal(9);
  message.mutable_exited()->set_step(12);
  cluster.Handle(2, message);
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
  EXPECT_EQ(cluster.Status(job).attempt(), 2);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_abort() && m.abort().attempt() == 1; }), 2);
}

TEST(Coordinator, RestartedCoordinatorAdoptsRunningJobs) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Steps(1, job, 0, 20);
  cluster.Restart();
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  EXPECT_EQ(cluster.Status(job).step(), 20);
  cluster.Advance(2000);
  cluster.sent.clear();
  cluster.Register(11, "a", 1, {cluster.Task(job, 30)});
  cluster.Register(12, "b", 1, {cluster.Task(job, 29)});
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  EXPECT_EQ(cluster.Status(job).step(), 30);
  EXPECT_EQ(cluster.Status(job).attempt(), 1);
  EXPECT_GT(cluster.CountSent([](const auto& m) { return m.has_renew(); }), 0) << "the lease is not in the log";
}

TEST(Coordinator, StepsOfAnEarlierAttemptDoNotCountAfterARestart) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Steps(1, job, 0, 40);
  cluster.CommitCheckpoint(job, 30);
  cluster.Fail(1, job, 40, absl::UnavailableError("the network broke"), "");
  ASSERT_EQ(cluster.Status(job).attempt(), 2);
  cluster.Restart();
  EXPECT_EQ(cluster.Status(job).step(), 30);
}

TEST(Coordinator, UnadoptedWorkerIsLostAfterTheWindow) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(/*attempts=*/1);
  cluster.Restart();
  cluster.Register(11, "a", 1, {cluster.Task(job, 30)});
  cluster.RunFor(21'000, {11});
  EXPECT_EQ(cluster.Status(job).state(), FAILED);
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("worker b"));
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("did not reconnect"));
}

TEST(Coordinator, RestartedWorkerHasLostItsTask) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(/*attempts=*/1);
  cluster.Gone(2);
  cluster.Register(12, "b", 2);
  EXPECT_EQ(cluster.Status(job).state(), FAILED);
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("its process restarted"));
}

TEST(Coordinator, ALostLaunchIsRepeatedAndCostsNoAttempt) {
  Cluster cluster;
  cluster.Register(1, "a");
  cluster.Register(2, "b");
  const std::string job = cluster.Submit(4);
  cluster.Built();
  cluster.Gone(2);
  cluster.sent.clear();
  cluster.Register(3, "b");
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_launch(); }), 1);
  EXPECT_EQ(cluster.Status(job).attempt(), 1);
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
}

TEST(Coordinator, StaleReportsAreRefused) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  const RunningTask old = cluster.Task(job, 5);
  cluster.Gone(2);
  cluster.Register(12, "b", 2);  // The failure ends attempt 1, and attempt 2 is placed.
  ASSERT_EQ(cluster.Status(job).attempt(), 2);
  cluster.sent.clear();
  WorkerMessage message;
  *message.mutable_heartbeat()->add_running() = old;
  cluster.Handle(1, message);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_abort() && m.abort().attempt() == 1; }), 1);
  EXPECT_EQ(cluster.Status(job).step(), 0);
  // A message with the current attempt and a wrong generation is stale, too.
  WorkerMessage ready;
  for (const int64_t connection : {1, 12}) {
    cluster.Name(job, ready.mutable_ready());
    ready.mutable_ready()->set_generation(1);
    cluster.Handle(connection, ready);
  }
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
}

TEST(Coordinator, MessagesOfAnotherProcessOnTheSameConnectionAreRefused) {
  Cluster cluster;
  cluster.Register(1, "a", 1);
  WorkerMessage message;
  message.mutable_draining();
  message.set_incarnation(2);
  cluster.Handle(1, message);
  EXPECT_EQ(cluster.closed, std::vector<ConnectionId>{ConnectionId(1)});
  EXPECT_EQ(cluster.coordinator().workers().List().workers(0).state(), "alive");
}

// If a connection could register two workers, its end would be taken for the loss of the second one only.
TEST(Coordinator, AConnectionRegistersOneWorker) {
  Cluster cluster;
  for (const char* id : {"a", "a", "b"}) cluster.Register(1, id);
  EXPECT_EQ(cluster.closed, std::vector<ConnectionId>{ConnectionId(1)});
  EXPECT_THAT(cluster.sent.back().message.registered().refused(),
              HasSubstr("found worker b on the connection of worker a"));
  const ListWorkersResponse workers = cluster.coordinator().workers().List();
  ASSERT_EQ(workers.workers_size(), 1);
  EXPECT_EQ(workers.workers(0).id(), "a");
}

TEST(Coordinator, ASecondProcessCannotTakeALiveWorkersId) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  for (int i = 0; i < 20; ++i) {
    cluster.Register(7, "b", 99);
    cluster.RunFor(100, {1, 2});
  }
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  EXPECT_EQ(cluster.Status(job).attempt(), 1);
  EXPECT_GT(cluster.CountSent([](const auto& m) {
    return m.registered().refused().find("another worker is registered as b (host host, pid 102)") != std::string::npos;
  }),
            0);
}

TEST(Coordinator, TheRefusalOfAWorkerOfAnotherProtocolNamesTheWorker) {
  Cluster cluster;
  cluster.protocol = kProtocol + 1;
  cluster.Register(1, "a");
  EXPECT_EQ(cluster.coordinator().workers().List().workers_size(), 0);
  EXPECT_THAT(cluster.sent.back().message.registered().refused(), HasSubstr("worker a uses protocol"));
  for (int32_t own = 1; own < 5; ++own) {
    for (int32_t theirs = 0; theirs < 7; ++theirs) {
      EXPECT_EQ(IsProtocolAccepted(own, theirs), theirs >= 1 && (theirs == own || theirs == own - 1));
    }
  }
}

TEST(Coordinator, DrainingStopsAtOneStepAndKeepsTheState) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Steps(1, job, 0, 10);
  WorkerMessage draining;
  draining.mutable_draining();
  cluster.Handle(2, draining);
  ASSERT_EQ(cluster.CountSent([](const auto& m) { return m.has_stop_at(); }), 2);
  int64_t stop_at = cluster.sent.back().message.stop_at().step();
  EXPECT_GT(stop_at, 10);
  // One worker has already passed the step, so all workers get a later one.
  WorkerMessage late;
  cluster.Name(job, late.mutable_stop_answer());
  late.mutable_stop_answer()->set_step(stop_at);
  late.mutable_stop_answer()->set_current(stop_at + 5);
  cluster.Handle(1, late);
  ASSERT_EQ(cluster.CountSent([](const auto& m) { return m.has_stop_at(); }), 4);
  stop_at = cluster.sent.back().message.stop_at().step();
  WorkerMessage stopped;
  cluster.Name(job, stopped.mutable_stopped());
  stopped.mutable_stopped()->set_step(stop_at);
  for (const int64_t connection : {1, 2}) {
    cluster.Shard(connection, job, stop_at);
    cluster.Handle(connection, stopped);
  }
  ASSERT_EQ(cluster.indexes.size(), 1u);
  const StoreIndex request = cluster.indexes[0];
  // The state is not lost if the disk is full for a while.
  cluster.Do([&](CoordinatorCore& c) { c.OnIndexStored(request, absl::ResourceExhaustedError("disk full")); });
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  cluster.Advance(100);
  ASSERT_EQ(cluster.indexes.size(), 2u);
  cluster.IndexStored();
  EXPECT_EQ(cluster.Status(job).state(), PENDING);
  EXPECT_EQ(cluster.Status(job).failures(), 0);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_may_exit(); }), 1);
  cluster.Gone(2);
  cluster.Restart();
  cluster.Register(21, "a", 1);
  cluster.Register(22, "c", 1);
  ASSERT_EQ(cluster.loads.size(), 1u) << "the plan is read once after a restart";
  cluster.Do([&](CoordinatorCore& c) { c.OnPlanLoaded("digest", PlannedProgram()); });
  const LaunchTask launch = cluster.sent.back().message.launch();
  EXPECT_EQ(launch.attempt(), 2);
  EXPECT_EQ(launch.first_step(), stop_at);
  EXPECT_EQ(launch.checkpoint_uri(), absl::StrCat("xlad:", stop_at));
}

TEST(Coordinator, AnAttemptWhoseWorkersEndWithoutTheirShardsHasFailed) {
  for (const bool finishes : {true, false}) {
    Cluster cluster;
    const std::string job = cluster.RunningJob();
    cluster.CommitCheckpoint(job, 10);
    cluster.Steps(1, job, 0, 20);
    WorkerMessage end;
    if (finishes) {
      cluster.Name(job, end.mutable_finished());
    } else {
      cluster.Name(job, end.mutable_stopped());
      end.mutable_stopped()->set_step(20);
    }
    cluster.Handle(1, end);
    EXPECT_EQ(cluster.Status(job).state(), RUNNING) << "the other worker may still write its shard";
    cluster.Handle(2, end);
    EXPECT_EQ(cluster.Status(job).failures(), 1);
    EXPECT_EQ(cluster.Status(job).attempt(), 2);
    EXPECT_EQ(cluster.sent.back().message.launch().first_step(), 10);
  }
}

TEST(Coordinator, ADrainedWorkerThatRestartsTakesWorkAgain) {
  Cluster cluster;
  cluster.Register(1, "a", 1);
  WorkerMessage draining;
  draining.mutable_draining();
  cluster.Handle(1, draining);
  EXPECT_EQ(cluster.coordinator().workers().List().workers(0).state(), "drained");
  cluster.Gone(1);
  cluster.Register(2, "a", 2);
  EXPECT_EQ(cluster.coordinator().workers().List().workers(0).state(), "alive");
  cluster.Submit(2);
  cluster.Built();
  EXPECT_EQ(cluster.coordinator().workers().List().workers(0).job_id().empty(), false);
}

TEST(Coordinator, AnOperatorsDrainOutlivesRestartsOfWorkerAndCoordinator) {
  Cluster cluster;
  cluster.Register(1, "a", 1);
  absl::Status status;
  cluster.Do([&](CoordinatorCore& c) { status = c.Drain(WorkerId("nobody")); });
  EXPECT_TRUE(absl::IsNotFound(status));
  cluster.Do([&](CoordinatorCore& c) { status = c.Drain(WorkerId("a")); });
  EXPECT_TRUE(status.ok());
  cluster.Restart();
  cluster.Register(2, "a", 2);
  EXPECT_EQ(cluster.coordinator().workers().List().workers(0).state(), "drained");
  const std::string job = cluster.Submit(2);
  EXPECT_TRUE(cluster.builds.empty());
  cluster.Do([&](CoordinatorCore& c) { status = c.Undrain(WorkerId("a")); });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(cluster.builds.size(), 1u);
  cluster.Do([&](CoordinatorCore& c) { status = c.Undrain(WorkerId("a")); });
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
}

TEST(Coordinator, LostWorkersAreRemovedAfterAWhile) {
  Cluster cluster;
  cluster.Register(1, "a", 1);
  cluster.Gone(1);
  cluster.Advance(11'000);
  EXPECT_EQ(cluster.coordinator().workers().List().workers(0).state(), "lost");
  cluster.Advance(601'000);
  EXPECT_EQ(cluster.coordinator().workers().List().workers_size(), 0);
}

TEST(Coordinator, LeasesAreRenewedInTime) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.sent.clear();
  cluster.Beat(1, job, 40);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_renew(); }), 0);
  cluster.Beat(1, job, 60);
  ASSERT_EQ(cluster.CountSent([](const auto& m) { return m.has_renew(); }), 2);
  EXPECT_EQ(cluster.sent.back().message.renew().lease_until_step(), 160);
}

TEST(Coordinator, MetricsAreAcknowledgedOnlyWhenTheyAreDurable) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.store.fail_next_appends = 1;
  cluster.Steps(1, job, 0, 5);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_acknowledge(); }), 0);
}

TEST(Coordinator, JobsLargerThanTheClusterDoNotBlockOthers) {
  Cluster cluster;
  cluster.Register(1, "a");
  const std::string large = cluster.Submit(64, "large");
  cluster.Built();
  const std::string small = cluster.Submit(2, "small");
  cluster.Built();
  EXPECT_EQ(cluster.Status(large).state(), PENDING);
  EXPECT_EQ(cluster.Status(large).reason(), "waits for 64 devices, the workers have 2");
  EXPECT_EQ(cluster.Status(small).state(), STARTING);
}

TEST(Coordinator, ImpossibleMeshesAreRefused) {
  Cluster cluster;
  JobSpec spec = cluster.Spec(1);
  spec.mutable_mesh(0)->set_size(int64_t{1} << 32);
  *spec.add_mesh() = spec.mesh(0);  // The product of the axis sizes does not fit into 64 bits.
  EXPECT_THAT(cluster.Submit(spec), HasSubstr("expected axis sizes of 1 or more and at most"));
  OpenSessionRequest session;
  session.set_client_key("session");
  *session.mutable_mesh() = spec.mesh();
  cluster.Do([&](CoordinatorCore& c) { EXPECT_TRUE(absl::IsInvalidArgument(c.OpenSession(session).status())); });
  EXPECT_EQ(cluster.CountJobs(), 0u);
}

TEST(Coordinator, CancelsAtAnyTime) {
  for (const bool running : {false, true}) {
    Cluster cluster;
    const std::string job = running ? cluster.RunningJob() : cluster.Submit(4);
    const auto cancel = [&](const std::string& id) {
      absl::Status status;
      cluster.Do([&](CoordinatorCore& c) { status = c.Cancel(JobId(id)); });
      return status;
    };
    EXPECT_TRUE(cancel(job).ok());
    EXPECT_EQ(cluster.Status(job).state(), CANCELLED);
    EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_abort(); }), running ? 2 : 0);
    EXPECT_TRUE(cancel(job).ok());
    EXPECT_TRUE(absl::IsNotFound(cancel("job-x")));
  }
}

TEST(Coordinator, StopsAtAValueThatIsNotFinite) {
  Cluster cluster;
  JobSpec spec = cluster.Spec(4);
  spec.set_stop_when_not_finite(true);
  spec.add_results()->set_name("loss");
  spec.mutable_results(0)->set_kind(JobSpec::Result::LOSS);
  const std::string job = cluster.RunningJob(spec);
  cluster.Steps(1, job, 0, 3);
  WorkerMessage message;
  cluster.Name(job, message.mutable_steps());
  message.mutable_steps()->add_metrics()->set_step(3);
  message.mutable_steps()->mutable_metrics(0)->add_values(std::nanf(""));
  cluster.Handle(1, message);
  EXPECT_EQ(cluster.Status(job).state(), FAILED);
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("step 3: found loss = nan"));
}

TEST(Coordinator, EndsAJobWhoseWorkerFoundAValueThatIsNotFinite) {
  for (const bool stops : {true, false}) {
    Cluster cluster;
    JobSpec spec = cluster.Spec(4);
    spec.set_stop_when_not_finite(stops);
    const std::string job = cluster.RunningJob(spec);
    WorkerMessage message;
    cluster.Name(job, message.mutable_failed());
    message.mutable_failed()->set_step(3);
    message.mutable_failed()->set_error("step 3: found loss = nan");
    message.mutable_failed()->set_error_code(static_cast<int>(absl::StatusCode::kOutOfRange));
    cluster.Handle(1, message);
    EXPECT_EQ(HasEnded(cluster.Status(job).state()), stops) << "without the flag another attempt begins";
    if (stops) EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("step 3: found loss = nan"));
  }
}

TEST(Coordinator, JobsAreListedInPages) {
  Cluster cluster;
  std::vector<std::string> ids;
  for (int i = 0; i < 7; ++i) ids.push_back(cluster.Submit(1, absl::StrCat("key", i)));
  using Pages = std::vector<std::vector<std::string>>;
  const auto list = [&](const std::function<bool(const Job&)>& shows) {
    ListJobsRequest request;
    request.set_limit(3);
    Pages pages;
    do {
      const ListJobsResponse page = cluster.coordinator().jobs().List(request, shows);
      pages.emplace_back();
      for (const JobStatus& job : page.jobs()) pages.back().push_back(job.id());
      request.set_after(page.next());
    } while (!request.after().empty());
    return pages;
  };
  EXPECT_EQ(list(nullptr), (Pages{{ids[0], ids[1], ids[2]}, {ids[3], ids[4], ids[5]}, {ids[6]}}));
  // Jobs that are not shown take no place in a page.
  const std::set<std::string> hidden = {"key1", "key3", "key4"};
  EXPECT_EQ(list([&](const Job& job) { return !hidden.contains(job.client_key); }),
            (Pages{{ids[0], ids[2], ids[5]}, {ids[6]}}));
  EXPECT_EQ(list([](const Job&) { return false; }), Pages(1));
}

TEST(Coordinator, OnlyPlacedJobsAreListedIfTheRequestSaysSo) {
  Cluster cluster;
  const std::string ended = cluster.RunningJob();
  cluster.Do([&](CoordinatorCore& c) { ASSERT_TRUE(c.Cancel(JobId(ended)).ok()); });
  std::vector<std::string> placed;
  for (int i = 0; i < 4; ++i) {
    placed.push_back(cluster.Submit(1, absl::StrCat("placed", i)));
    cluster.Built("one");
  }
  const std::string waits = cluster.Submit(1, "waits");
  cluster.Built("one");
  ASSERT_EQ(cluster.Status(waits).state(), PENDING);
  ListJobsRequest request;
  request.set_placed(true);
  request.set_limit(3);
  std::vector<std::string> listed;
  do {
    const ListJobsResponse page = cluster.coordinator().jobs().List(request);
    for (const JobStatus& job : page.jobs()) listed.push_back(job.id());
    request.set_after(page.next());
  } while (!request.after().empty());
  EXPECT_EQ(listed, placed);
}

}  // namespace
}  // namespace xlad::service
