// CoordinatorCore with scripted workers, a virtual clock, a log in memory, and restarts at any point.
#include "service/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "proto/device_name.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;

// A cluster in one thread: the core, its log, and the messages that it sent.
class Cluster {
 public:
  Cluster() { Restart(); }

  void Restart() {
    random_ = SeededRandom(++seed_);
    log_ = OpenMemoryJobLog(&store);
    CoordinatorOptions options;
    options.lease_steps = 100;
    core = std::make_unique<CoordinatorCore>(
        options, CoordinatorCore::Environment{&clock, random_.get(), log_.get(),
                                              [](const std::string&) { return Executable(); }});
    Actions actions;
    ASSERT_TRUE(core->Recover(&actions).ok());
    Perform(actions);
  }

  void Perform(const Actions& actions) {
    for (const Action& action : actions) {
      if (const auto* send = std::get_if<SendMessage>(&action)) sent.push_back(*send);
      if (const auto* build = std::get_if<StartBuild>(&action)) {
        builds.push_back(build->job_id);
        build_kinds.push_back(DeviceName(build->target));
      }
      if (const auto* assemble = std::get_if<AssembleState>(&action)) assemblies.push_back(*assemble);
      if (const auto* close = std::get_if<CloseConnection>(&action)) closed.push_back(close->connection);
    }
  }

  std::string Submit(int64_t devices, const std::string& key = "key", int attempts = 1,
                     const std::string& device_name = "") {
    SubmitJobRequest request;
    request.mutable_spec()->set_device_name(device_name);
    request.set_client_key(key);
    request.mutable_spec()->set_name("test");
    request.mutable_spec()->set_steps(1000);
    request.mutable_spec()->set_max_attempts(attempts);
    request.mutable_spec()->set_state_blob("initial");
    MeshAxis* axis = request.mutable_spec()->add_mesh();
    axis->set_name("dp");
    axis->set_size(devices);
    Actions actions;
    const auto response = core->Submit(request, &actions);
    Perform(actions);
    return response.ok() ? response->job_id() : std::string(response.status().message());
  }

  void Register(ConnectionId connection, const std::string& id, uint64_t incarnation = 1,
                const std::vector<RunningTask>& running = {}, const std::vector<std::string>& kinds = {}) {
    WorkerMessage message;
    RegisterWorker* registration = message.mutable_register_();
    registration->set_worker_id(id);
    registration->set_incarnation(incarnation);
    registration->set_host("host");
    registration->set_pid(100 + connection);
    registration->set_devices(2);
    for (const std::string& kind : kinds) {
      DeviceOffer* offer = registration->add_offers();
      offer->set_count(2 / static_cast<int>(kinds.size()));
      offer->mutable_target()->set_device_kind(kind);
    }
    for (const RunningTask& task : running) *registration->add_running() = task;
    Handle(connection, message);
  }

  void Handle(ConnectionId connection, const WorkerMessage& message) {
    Actions actions;
    core->OnWorkerMessage(connection, message, &actions);
    Perform(actions);
  }
  void Gone(ConnectionId connection) {
    Actions actions;
    core->OnWorkerGone(connection, &actions);
    Perform(actions);
  }
  void Built() {
    ASSERT_FALSE(builds.empty());
    Actions actions;
    core->OnBuilt(builds.back(), BuiltProgram{"digest", 12, {}}, &actions);
    Perform(actions);
  }
  void Advance(int64_t ms) {
    for (int64_t t = 0; t < ms; t += 100) {
      clock.Advance(100 * kNsPerMs);
      Actions actions;
      core->OnTick(&actions);
      Perform(actions);
    }
  }
  void Ready(ConnectionId connection, const std::string& job) {
    WorkerMessage message;
    message.mutable_ready()->set_job_id(job);
    message.mutable_ready()->set_attempt(core->GetJob(job)->attempt());
    Handle(connection, message);
  }
  void Beat(ConnectionId connection, const std::string& job, int64_t step) {
    WorkerMessage message;
    *message.mutable_heartbeat()->add_running() = Task(job, step);
    Handle(connection, message);
  }
  void Steps(ConnectionId connection, const std::string& job, int64_t from, int64_t to) {
    WorkerMessage message;
    message.mutable_steps()->set_job_id(job);
    message.mutable_steps()->set_attempt(core->GetJob(job)->attempt());
    for (int64_t step = from; step < to; ++step) {
      StepMetrics* metrics = message.mutable_steps()->add_metrics();
      metrics->set_step(step);
      metrics->add_values(static_cast<float>(step));
      metrics->set_step_ms(50);
    }
    Handle(connection, message);
  }
  RunningTask Task(const std::string& job, int64_t step) {
    RunningTask task;
    task.set_job_id(job);
    task.set_attempt(core->GetJob(job)->attempt());
    task.set_step(step);
    return task;
  }
  // A running job on four devices of workers a and b.
  std::string RunningJob(int attempts = 1) {
    Register(1, "a");
    Register(2, "b");
    const std::string job = Submit(4, "key", attempts);
    Built();
    Ready(1, job);
    Ready(2, job);
    EXPECT_EQ(core->GetJob(job)->state(), RUNNING);
    return job;
  }
  template <typename Predicate>
  int CountSent(const Predicate& predicate) const {
    int count = 0;
    for (const SendMessage& message : sent) count += predicate(message.message);
    return count;
  }

  ManualClock clock;
  MemoryJobStore store;
  std::unique_ptr<CoordinatorCore> core;
  std::vector<SendMessage> sent;
  std::vector<std::string> builds;
  std::vector<std::string> build_kinds;
  std::vector<AssembleState> assemblies;
  std::vector<ConnectionId> closed;

 private:
  uint64_t seed_ = 0;
  std::unique_ptr<Random> random_;
  std::unique_ptr<JobLog> log_;
};

TEST(Coordinator, SubmissionIsIdempotentAndDurable) {
  Cluster cluster;
  const std::string id = cluster.Submit(4);
  EXPECT_EQ(cluster.Submit(4), id);
  EXPECT_THAT(cluster.Submit(8), HasSubstr("another spec"));
  cluster.Restart();
  EXPECT_EQ(cluster.Submit(4), id);
  EXPECT_EQ(cluster.core->ListJobs().size(), 1u);
  cluster.store.fail_next_appends = 1;
  EXPECT_THAT(cluster.Submit(2, "other"), HasSubstr("disk full"));
  EXPECT_EQ(cluster.core->ListJobs().size(), 1u);  // The job was refused.
}

TEST(Coordinator, RunsAJobToItsEnd) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_start(); }), 2);
  cluster.Steps(1, job, 0, 10);
  EXPECT_EQ(cluster.core->GetJob(job)->step(), 10);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_acknowledge(); }), 1);
  for (ConnectionId connection : {1, 2}) {
    WorkerMessage message;
    message.mutable_finished()->set_job_id(job);
    message.mutable_finished()->set_attempt(1);
    cluster.Handle(connection, message);
  }
  EXPECT_EQ(cluster.core->GetJob(job)->state(), SUCCEEDED);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_forget(); }), 2);
}

TEST(Coordinator, LostWorkerIsNamedWithHostPidAndStep) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Steps(1, job, 0, 7);
  cluster.Gone(2);
  EXPECT_EQ(cluster.core->GetJob(job)->state(), RUNNING);  // The worker may reconnect within the grace period.
  WorkerMessage failed;
  failed.mutable_failed()->set_job_id(job);
  failed.mutable_failed()->set_attempt(1);
  failed.mutable_failed()->set_step(7);
  failed.mutable_failed()->set_error("peer b is gone");
  failed.mutable_failed()->set_suspect_worker("b");
  cluster.Handle(1, failed);  // A peer reports the loss: no grace period.
  const JobStatus status = *cluster.core->GetJob(job);
  EXPECT_EQ(status.state(), FAILED);
  EXPECT_EQ(status.reason(), "worker b (host host, pid 102) was lost at step 7: its connections closed");
  EXPECT_EQ(status.workers(1).state(), "lost");
  EXPECT_EQ(status.workers(0).state(), "alive");
}

TEST(Coordinator, SilentWorkerIsLostAfterTheTimeout) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  for (int i = 0; i < 40; ++i) {
    cluster.Beat(1, job, i);
    cluster.Advance(100);
  }
  EXPECT_THAT(cluster.core->GetJob(job)->reason(), HasSubstr("worker b (host host, pid 102) was lost"));
  EXPECT_THAT(cluster.core->GetJob(job)->reason(), HasSubstr("no heartbeat for 3000 ms"));
}

TEST(Coordinator, RestartsWhileAttemptsRemain) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(2);
  cluster.Gone(2);
  cluster.Advance(1500);
  EXPECT_EQ(cluster.core->GetJob(job)->state(), PENDING);
  EXPECT_THAT(cluster.core->GetJob(job)->reason(), HasSubstr("waits for 4 devices"));
  cluster.Register(3, "b", 2);
  EXPECT_EQ(cluster.core->GetJob(job)->state(), STARTING);
  EXPECT_EQ(cluster.core->GetJob(job)->attempt(), 2);
}

TEST(Coordinator, RestartedCoordinatorAdoptsRunningJobs) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Steps(1, job, 0, 20);
  cluster.Restart();
  EXPECT_EQ(cluster.core->GetJob(job)->state(), RUNNING);
  EXPECT_EQ(cluster.core->GetJob(job)->step(), 20);
  cluster.Advance(2000);
  cluster.Register(11, "a", 1, {cluster.Task(job, 30)});
  cluster.Register(12, "b", 1, {cluster.Task(job, 29)});
  EXPECT_EQ(cluster.core->GetJob(job)->state(), RUNNING);
  EXPECT_EQ(cluster.core->GetJob(job)->step(), 30);
  EXPECT_EQ(cluster.core->GetJob(job)->attempt(), 1);
}

TEST(Coordinator, UnadoptedWorkerIsLostAfterTheWindow) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Restart();
  cluster.Register(11, "a", 1, {cluster.Task(job, 30)});
  for (int i = 0; i < 210; ++i) {
    cluster.Beat(11, job, 30 + i);
    cluster.Advance(100);
  }
  EXPECT_EQ(cluster.core->GetJob(job)->state(), FAILED);
  EXPECT_THAT(cluster.core->GetJob(job)->reason(), HasSubstr("worker b"));
  EXPECT_THAT(cluster.core->GetJob(job)->reason(), HasSubstr("did not reconnect"));
}

TEST(Coordinator, RestartedWorkerHasLostItsTask) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Register(12, "b", 2);
  EXPECT_EQ(cluster.core->GetJob(job)->state(), FAILED);
  EXPECT_THAT(cluster.core->GetJob(job)->reason(), HasSubstr("worker b"));
}

TEST(Coordinator, StaleReportsAreRefused) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(2);
  const RunningTask old = cluster.Task(job, 5);
  cluster.Register(12, "b", 2);  // Ends attempt 1; attempt 2 is placed.
  ASSERT_EQ(cluster.core->GetJob(job)->attempt(), 2);
  cluster.sent.clear();
  WorkerMessage message;
  *message.mutable_heartbeat()->add_running() = old;
  cluster.Handle(1, message);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_abort() && m.abort().attempt() == 1; }), 1);
  EXPECT_EQ(cluster.core->GetJob(job)->step(), 0);
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
  // One worker has passed the step: all get a later one.
  WorkerMessage late;
  late.mutable_stop_answer()->set_job_id(job);
  late.mutable_stop_answer()->set_attempt(1);
  late.mutable_stop_answer()->set_step(stop_at);
  late.mutable_stop_answer()->set_current(stop_at + 5);
  cluster.Handle(1, late);
  ASSERT_EQ(cluster.CountSent([](const auto& m) { return m.has_stop_at(); }), 4);
  stop_at = cluster.sent.back().message.stop_at().step();
  for (ConnectionId connection : {1, 2}) {
    WorkerMessage stopped;
    stopped.mutable_stopped()->set_job_id(job);
    stopped.mutable_stopped()->set_attempt(1);
    stopped.mutable_stopped()->set_step(stop_at);
    cluster.Handle(connection, stopped);
  }
  ASSERT_EQ(cluster.assemblies.size(), 1u);
  Actions actions;
  cluster.core->OnStateAssembled(cluster.assemblies[0], std::string("saved"), &actions);
  cluster.Perform(actions);
  EXPECT_EQ(cluster.core->GetJob(job)->state(), PENDING);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_may_exit(); }), 1);
  cluster.Gone(2);
  cluster.Restart();
  cluster.Register(21, "a", 1);
  cluster.Register(22, "c", 1);
  const auto launches = [&] {
    std::vector<LaunchTask> found;
    for (const auto& message : cluster.sent) {
      if (message.message.has_launch() && message.message.launch().attempt() == 2) {
        found.push_back(message.message.launch());
      }
    }
    return found;
  }();
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].first_step(), stop_at);
  EXPECT_EQ(launches[0].state_blob(), "saved");
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

TEST(Coordinator, UnacknowledgedMetricsAreSentAgain) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.store.fail_next_appends = 1;
  cluster.Steps(1, job, 0, 5);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_acknowledge(); }), 0);
  EXPECT_EQ(cluster.closed, std::vector<ConnectionId>{1});
}

TEST(Coordinator, JobsLargerThanTheClusterDoNotBlockOthers) {
  Cluster cluster;
  cluster.Register(1, "a");
  const std::string large = cluster.Submit(64, "large");
  cluster.Built();
  const std::string small = cluster.Submit(2, "small");
  cluster.Built();
  EXPECT_EQ(cluster.core->GetJob(large)->state(), PENDING);
  EXPECT_EQ(cluster.core->GetJob(large)->reason(), "waits for 64 devices, 2 are free of 2");
  EXPECT_EQ(cluster.core->GetJob(small)->state(), STARTING);
}

TEST(Coordinator, CancelsAtAnyTime) {
  for (const bool running : {false, true}) {
    Cluster cluster;
    const std::string job = running ? cluster.RunningJob() : cluster.Submit(4);
    Actions actions;
    EXPECT_TRUE(cluster.core->Cancel(job, &actions).ok());
    cluster.Perform(actions);
    EXPECT_EQ(cluster.core->GetJob(job)->state(), CANCELLED);
    EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_abort(); }), running ? 2 : 0);
    EXPECT_TRUE(cluster.core->Cancel(job, &actions).ok());
    EXPECT_TRUE(absl::IsNotFound(cluster.core->Cancel("job-x", &actions)));
  }
}

TEST(DeviceKinds, AJobIsBuiltForTheKindThatHasEnoughDevices) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  cluster.Register(2, "w2", 1, {}, {"opaque"});
  cluster.Register(3, "w3", 1, {}, {"opaque"});
  cluster.Submit(4);
  EXPECT_EQ(cluster.build_kinds, std::vector<std::string>{"opaque"});
}

TEST(DeviceKinds, AJobIsBuiltForItsRequiredKind) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu", "opaque"});
  cluster.Submit(1, "a", 1, "opaque");
  cluster.Submit(1, "b", 1, "cpu");
  EXPECT_EQ(cluster.build_kinds, (std::vector<std::string>{"opaque", "cpu"}));
}

TEST(DeviceKinds, AJobThatNeedsTwoKindsIsRefused) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  cluster.Register(2, "w2", 1, {}, {"opaque"});
  const std::string job = cluster.Submit(4);
  EXPECT_EQ(cluster.core->GetJob(job)->state(), PENDING) << "another worker may still register";
  for (int i = 0; i < 50; ++i) {
    cluster.Beat(1, job, 0);
    cluster.Beat(2, job, 0);
    cluster.Advance(100);
  }
  EXPECT_EQ(cluster.core->GetJob(job)->state(), FAILED);
  EXPECT_EQ(cluster.core->GetJob(job)->reason(),
            "the job needs 4 devices of one kind; the workers have cpu: 2 on w1; opaque: 2 on w2; mixed jobs, which "
            "run on several kinds of device, are not supported yet");
  EXPECT_TRUE(cluster.builds.empty());
}

TEST(DeviceKinds, AJobWaitsIfAWorkerOfItsKindMayStillRegister) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  cluster.Register(2, "w2", 1, {}, {"opaque"});
  const std::string job = cluster.Submit(4);
  cluster.Advance(1000);
  cluster.Register(3, "w3", 1, {}, {"opaque"});
  EXPECT_EQ(cluster.build_kinds, std::vector<std::string>{"opaque"});
  EXPECT_EQ(cluster.core->GetJob(job)->state(), COMPILING);
}

TEST(DeviceKinds, AJobOfAKindThatNoWorkerHasIsRefused) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  const std::string job = cluster.Submit(2, "key", 1, "opaque");
  for (int i = 0; i < 50; ++i) {
    cluster.Beat(1, job, 0);
    cluster.Advance(100);
  }
  EXPECT_EQ(cluster.core->GetJob(job)->state(), FAILED);
  EXPECT_EQ(cluster.core->GetJob(job)->reason(),
            "no worker has devices of kind opaque; the workers have cpu: 2 on w1; start a worker with --device opaque");
}

}  // namespace
}  // namespace xlad::service
