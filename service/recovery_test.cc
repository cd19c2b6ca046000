// Checkpoints, and how jobs continue after the loss of a worker or on another mesh: restart, shrink, wait, resize.
#include <cmath>
#include <limits>
#include <map>

#include "service/attempts/checkpoints.h"
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobSpec WithPolicy(JobSpec spec, JobSpec::OnLoss on_loss) {
  spec.set_on_loss(on_loss);
  return spec;
}

// Returns the last launch that was sent.
LaunchTask LastLaunch(const Cluster& cluster) {
  LaunchTask launch;
  for (const SendMessage& sent : cluster.sent) {
    if (sent.message.has_launch()) launch = sent.message.launch();
  }
  return launch;
}

TEST(Recovery, ACheckpointIsCommittedWhenAllShardsAreWritten) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Shard(1, job, 10);
  EXPECT_TRUE(cluster.indexes.empty());
  cluster.Shard(2, job, 10);
  ASSERT_EQ(cluster.indexes.size(), 1u);
  EXPECT_EQ(cluster.indexes[0].index.shards_size(), 2);
  cluster.Shard(2, job, 10);  // The message is repeated.
  EXPECT_EQ(cluster.indexes.size(), 1u);
  EXPECT_FALSE(cluster.Status(job).has_checkpoint());
  cluster.IndexStored();
  EXPECT_EQ(cluster.Status(job).checkpoint_step(), 10);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_committed() && m.committed().step() == 10; }), 2);
  cluster.sent.clear();
  cluster.Shard(2, job, 10);  // The worker repeats its message because the answer was lost.
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_committed(); }), 1);
}

TEST(Recovery, AnIndexThatCannotBeStoredIsStoredLater) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Shard(1, job, 10);
  cluster.Shard(2, job, 10);
  const StoreIndex request = cluster.indexes.back();
  cluster.Do([&](CoordinatorCore& c) { c.OnIndexStored(request, absl::ResourceExhaustedError("disk full")); });
  EXPECT_FALSE(cluster.Status(job).has_checkpoint());
  cluster.Advance(100);
  ASSERT_EQ(cluster.indexes.size(), 2u);
  cluster.IndexStored();
  EXPECT_EQ(cluster.Status(job).checkpoint_step(), 10);
}

TEST(Recovery, CheckpointsThatCannotBeStoredAreReportedOnce) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  const auto events = [&] {
    int count = 0;
    for (const JobEvent& event : cluster.store.events) count += event.has_checkpoint_failed();
    return count;
  };
  const auto fail = [&](int64_t step) {
    WorkerMessage message;
    cluster.Name(job, message.mutable_shard_failed());
    message.mutable_shard_failed()->set_step(step);
    message.mutable_shard_failed()->set_error("cannot create /ckpt: Read-only file system");
    cluster.Handle(2, message);
  };
  fail(10);
  fail(20);
  EXPECT_EQ(events(), 1);
  const std::string error =
      "worker b's part of the checkpoint of step 10 cannot be stored: cannot create /ckpt: "
      "Read-only file system";
  EXPECT_EQ(cluster.Status(job).checkpoint_error(), error);
  EXPECT_THAT(cluster.coordinator().Why(JobId(job))->text(), HasSubstr(error));
  const RunningTask task = cluster.Task(job, 20);
  cluster.Restart();
  EXPECT_EQ(cluster.Status(job).checkpoint_error(), error);
  cluster.Register(1, "a", 1, {task});
  cluster.Register(2, "b", 1, {task});
  cluster.CommitCheckpoint(job, 30);
  EXPECT_EQ(cluster.Status(job).checkpoint_error(), "");
  cluster.Shard(1, job, 40);
  cluster.Shard(2, job, 40);
  const StoreIndex request = cluster.indexes.back();
  cluster.Do([&](CoordinatorCore& c) { c.OnIndexStored(request, absl::ResourceExhaustedError("disk full")); });
  EXPECT_EQ(events(), 2);
  EXPECT_EQ(cluster.Status(job).checkpoint_error(),
            "the index of the checkpoint of step 40 cannot be stored: disk full");
}

TEST(Recovery, AFencedAttemptCannotCommit) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Shard(1, job, 10);
  cluster.Shard(2, job, 10);
  const StoreIndex old = cluster.indexes.back();
  WorkerMessage stale;
  cluster.Name(job, stale.mutable_shard_written());
  stale.mutable_shard_written()->set_step(20);
  cluster.Fail(1, job, 12, absl::UnavailableError("the network broke"), "");
  ASSERT_EQ(cluster.Status(job).attempt(), 2);
  cluster.Do([&](CoordinatorCore& c) { c.OnIndexStored(old, Checkpoint{10, "xlad:10", "digest", 0}); });
  for (const int64_t connection : {1, 2}) cluster.Handle(connection, stale);
  EXPECT_FALSE(cluster.Status(job).has_checkpoint());
  EXPECT_EQ(cluster.indexes.size(), 1u);
}

// Launches that are sent again share the common part, too, for example those to all workers after a restart of the
// coordinator.
TEST(Recovery, TheLaunchesOfAnAttemptShareTheirCommonPart) {
  Cluster cluster;
  cluster.Register(1, "a");
  cluster.Register(2, "b");
  cluster.Submit(4);
  cluster.Built();
  const auto parts = [&] {
    std::vector<std::shared_ptr<const std::string>> common;
    for (const SendMessage& sent : cluster.sent) {
      if (sent.message.has_launch()) common.push_back(sent.common);
    }
    return common;
  };
  cluster.Gone(2);
  cluster.Register(3, "b");
  ASSERT_EQ(parts().size(), 3u);
  EXPECT_EQ(parts()[1], parts()[0]);
  EXPECT_EQ(parts()[2], parts()[0]);
  cluster.sent.clear();
  cluster.Restart();
  cluster.Register(4, "a");
  cluster.Register(5, "b");
  ASSERT_EQ(parts().size(), 2u);
  EXPECT_NE(parts()[0], nullptr);
  EXPECT_EQ(parts()[0], parts()[1]);
}

TEST(Recovery, TheBytesOfALaunchGrowNoFasterThanTheNumberOfItsWorkers) {
  const auto bytes_of = [](int workers) {
    Cluster cluster;
    for (int w = 0; w < workers; ++w) cluster.Register(w + 1, absl::StrCat("worker-", w));
    cluster.Submit(int64_t{2} * workers);
    cluster.Built();
    std::map<const std::string*, size_t> parts;  // The size of each part that is serialized once.
    size_t own = 0;
    for (const SendMessage& sent : cluster.sent) {
      if (!sent.message.has_launch()) continue;
      const size_t common = sent.common == nullptr ? 0 : sent.common->size();
      parts[sent.common.get()] = common;
      own += sent.message.ByteSizeLong() - common;
    }
    for (const auto& [part, size] : parts) own += size;
    return own;
  };
  const size_t few = bytes_of(5), many = bytes_of(40);
  EXPECT_GT(few, 0u);
  EXPECT_LE(many, 8 * few);
}

// Worker b loses its connection and the messages sent on it, and registers again on connection 3.
void Reconnect(Cluster* cluster, const std::string& job, int64_t step) {
  cluster->Gone(2);
  cluster->sent.clear();
  cluster->Register(3, "b", 1, {cluster->Task(job, step)});
}

TEST(Recovery, AStopThatWasLostWithAConnectionIsSentAgain) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  ASSERT_TRUE(cluster.Do([](CoordinatorCore& c) { EXPECT_TRUE(c.Drain(WorkerId("a")).ok()); }));
  const int64_t step = cluster.sent.back().message.stop_at().step();
  ASSERT_GT(step, 0);
  Reconnect(&cluster, job, 5);
  EXPECT_EQ(cluster.CountSent([&](const auto& m) { return m.has_stop_at() && m.stop_at().step() == step; }), 1);
}

TEST(Recovery, ALeaseThatWasLostWithAConnectionIsSentAgain) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Beat(1, job, 60);
  Reconnect(&cluster, job, 60);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_renew() && m.renew().lease_until_step() == 160; }), 1);
}

TEST(Recovery, AnAttemptThatStopsIsGivenItsLease) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  ASSERT_TRUE(cluster.Do([](CoordinatorCore& c) { EXPECT_TRUE(c.Drain(WorkerId("a")).ok()); }));
  cluster.sent.clear();
  cluster.Beat(1, job, 60);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_renew(); }), 2);
}

TEST(Recovery, AnAttemptThatStoppedBeforeTheCoordinatorRestartedContinues) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Restart();
  cluster.Register(1, "a", 1, {cluster.Task(job, 20)});
  cluster.Register(2, "b", 1, {cluster.Task(job, 20)});
  WorkerMessage stopped;
  cluster.Name(job, stopped.mutable_stopped());
  stopped.mutable_stopped()->set_step(20);
  for (const int64_t connection : {1, 2}) {
    cluster.Shard(connection, job, 20);
    cluster.Handle(connection, stopped);
  }
  cluster.IndexStored();
  EXPECT_EQ(cluster.Status(job).attempt(), 1);
  cluster.Advance(100);
  const std::string digest = cluster.loads.empty() ? "" : cluster.loads.back();
  cluster.Do([&](CoordinatorCore& c) { c.OnPlanLoaded(digest, PlannedProgram()); });
  EXPECT_EQ(cluster.Status(job).attempt(), 2) << "the next attempt starts from the saved state";
  EXPECT_EQ(LastLaunch(cluster).first_step(), 20);
}

TEST(Recovery, AWorkerThatIsLostDuringAdoptionIsNoLongerReady) {
  Cluster cluster;
  cluster.Register(1, "a");
  cluster.Register(2, "b");
  const std::string job = cluster.Submit(4);
  cluster.Built();
  const RunningTask task = cluster.Task(job, 0);
  cluster.Restart();
  cluster.Register(1, "a", 1, {task});
  cluster.Ready(1, job);
  cluster.RunFor(11'000, {});  // Worker a is silent and counts as lost after 10 s.
  cluster.Register(2, "b", 1, {task});
  cluster.Ready(2, job);
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
  cluster.Register(3, "a", 1, {task});
  cluster.Ready(3, job);
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  EXPECT_EQ(cluster.Status(job).attempt(), 1);
}

TEST(Recovery, AnAttemptWithoutStepsMaySaveItsStateBeforeItIsKnownToBeReady) {
  Cluster cluster;
  cluster.Register(1, "a");
  cluster.Register(2, "b");
  const std::string job = cluster.Submit(4);
  cluster.Built();
  for (const int64_t connection : {1, 2}) cluster.Shard(connection, job, 1000);
  EXPECT_TRUE(cluster.indexes.empty()) << "nothing is committed before the attempt has started";
  for (const int64_t connection : {1, 2}) cluster.Ready(connection, job);
  cluster.Advance(100);
  ASSERT_EQ(cluster.indexes.size(), 1u);
  cluster.IndexStored();
  EXPECT_EQ(cluster.Status(job).checkpoint_step(), 1000);
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  for (const int64_t connection : {1, 2}) {
    WorkerMessage finished;
    cluster.Name(job, finished.mutable_finished());
    cluster.Handle(connection, finished);
  }
  EXPECT_EQ(cluster.Status(job).state(), SUCCEEDED);
}

TEST(Recovery, OldCheckpointsAreDropped) {
  Cluster cluster;
  JobSpec spec = cluster.Spec(4);
  spec.mutable_checkpoint()->set_every_steps(10);
  spec.mutable_checkpoint()->set_keep(3);
  const std::string job = cluster.RunningJob(spec);
  for (int64_t step = 10; step <= 60; step += 10) cluster.CommitCheckpoint(job, step);
  const auto all = ElementsAre("xlad:10", "xlad:20", "xlad:30");
  EXPECT_THAT(cluster.dropped, all);
  cluster.Restart();
  EXPECT_THAT(cluster.dropped_again, ElementsAre(all)) << "one action for all drops in the log";
  EXPECT_EQ(cluster.dropped.size(), 3u);
  EXPECT_EQ(cluster.JobOf(job).checkpoints.size(), 3u);
  EXPECT_EQ(cluster.Status(job).checkpoint_step(), 60);
}

TEST(Recovery, CheckpointsByTimeNameAStepThatNoWorkerHasBegun) {
  Cluster cluster;
  JobSpec spec = cluster.Spec(4);
  spec.mutable_checkpoint()->set_every_ms(5000);
  const std::string job = cluster.RunningJob(spec);
  cluster.Steps(1, job, 0, 10);
  cluster.RunFor(5000, {1, 2});
  ASSERT_EQ(cluster.CountSent([](const auto& m) { return m.has_checkpoint_at(); }), 2);
  const CheckpointAt request = cluster.sent.back().message.checkpoint_at();
  EXPECT_GT(request.step(), 10);
  WorkerMessage late;
  cluster.Name(job, late.mutable_checkpoint_answer());
  late.mutable_checkpoint_answer()->set_step(request.step());
  late.mutable_checkpoint_answer()->set_current(request.step() + 500);
  cluster.Register(9, "other");
  cluster.Handle(9, late);
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_checkpoint_at(); }), 2) << "it does not run the job";
  late.mutable_checkpoint_answer()->set_current(request.step() + 100);
  cluster.Handle(1, late);
  ASSERT_EQ(cluster.CountSent([](const auto& m) { return m.has_checkpoint_at(); }), 4);
  EXPECT_GT(cluster.sent.back().message.checkpoint_at().step(), request.step() + 100);
  EXPECT_LT(cluster.sent.back().message.checkpoint_at().step(), request.step() + 500);
}

TEST(Recovery, CheckpointsByTimeAreAsRareAsTheSpecSays) {
  for (const int log_ms : {20, 43, 44, 45, 46, 47, 50, 53}) {
    Cluster cluster;
    JobSpec spec = cluster.Spec(4);
    spec.mutable_checkpoint()->set_every_ms(int64_t{1} << log_ms);
    const std::string job = cluster.RunningJob(spec);
    cluster.Steps(1, job, 0, 10);
    cluster.RunFor(5000, {1, 2});
    EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_checkpoint_at(); }), 0) << "2^" << log_ms << " ms";
  }
}

TEST(Recovery, AJobSucceedsWhenItsFinalCheckpointIsCommitted) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Shard(1, job, 1000);
  cluster.Shard(2, job, 1000);
  WorkerMessage finished;
  cluster.Name(job, finished.mutable_finished());
  for (const int64_t connection : {1, 2}) cluster.Handle(connection, finished);
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  // The coordinator dies before the commit, and the workers repeat the messages that were not answered.
  const RunningTask task = cluster.Task(job, 1000);
  cluster.Restart();
  cluster.Register(1, "a", 1, {task});
  cluster.Register(2, "b", 1, {task});
  for (const int64_t connection : {1, 2}) {
    cluster.Shard(connection, job, 1000);
    cluster.Handle(connection, finished);
  }
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  cluster.IndexStored();
  EXPECT_EQ(cluster.Status(job).state(), SUCCEEDED);
}

TEST(Recovery, RestartContinuesFromTheNewestCheckpointOnSpareDevices) {
  Cluster cluster;
  cluster.Register(3, "spare");
  const std::string job = cluster.RunningJob();
  const bool uses_spare = cluster.JobOf(job).placed.peers(0).worker_id() == "spare";
  EXPECT_FALSE(uses_spare);
  cluster.CommitCheckpoint(job, 10);
  cluster.CommitCheckpoint(job, 20);
  cluster.Gone(2);
  cluster.Fail(1, job, 25, absl::UnavailableError("peer b is gone"), "b");
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
  const LaunchTask launch = LastLaunch(cluster);
  EXPECT_EQ(launch.first_step(), 20);
  EXPECT_EQ(launch.checkpoint_uri(), "xlad:20");
  EXPECT_EQ(launch.checkpoint_digest(), "digest");
  EXPECT_TRUE(launch.state_blob().empty());
}

TEST(Recovery, ShrinkReducesABatchAxisAfterAWhile) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(WithPolicy(cluster.Spec(4), JobSpec::SHRINK));
  cluster.CommitCheckpoint(job, 10);
  cluster.Gone(2);
  cluster.Fail(1, job, 15, absl::UnavailableError("peer b is gone"), "b");
  EXPECT_EQ(cluster.Status(job).state(), PENDING);
  cluster.RunFor(2000, {1});
  EXPECT_EQ(cluster.Status(job).mesh(0).size(), 4) << "the worker may reconnect";
  cluster.RunFor(1500, {1});
  EXPECT_EQ(cluster.Status(job).mesh(0).size(), 2);
  EXPECT_EQ(cluster.Status(job).state(), COMPILING);
  cluster.Built("smaller", {"dp"});
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
  EXPECT_EQ(LastLaunch(cluster).first_step(), 10);
  EXPECT_EQ(LastLaunch(cluster).spec().mesh(0).size(), 2);
  EXPECT_EQ(LastLaunch(cluster).executable_digest(), "smaller");
}

TEST(Recovery, ShrinkNeverReducesOtherAxes) {
  Cluster cluster;
  JobSpec spec = WithPolicy(cluster.Spec(4), JobSpec::SHRINK);
  spec.add_shrink_axes("other");
  const std::string job = cluster.RunningJob(spec);
  cluster.Gone(2);
  cluster.Fail(1, job, 15, absl::UnavailableError("peer b is gone"), "b");
  cluster.RunFor(10'000, {1});
  EXPECT_EQ(cluster.Status(job).state(), PENDING);
  EXPECT_EQ(cluster.Status(job).mesh(0).size(), 4);
}

TEST(Recovery, WaitUsesOnlyTheWorkersOfTheLastAttempt) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(WithPolicy(cluster.Spec(4), JobSpec::WAIT));
  cluster.Gone(2);
  cluster.Fail(1, job, 15, absl::UnavailableError("peer b is gone"), "b");
  cluster.Register(3, "spare");
  EXPECT_EQ(cluster.Status(job).state(), PENDING);
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("waits for worker b"));
  cluster.Register(4, "b", 2);
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
}

absl::Status ResizeToMesh(Cluster* cluster, const std::string& job, int64_t size) {
  ResizeJobRequest request;
  request.set_job_id(job);
  *request.mutable_mesh() = cluster->Spec(size).mesh();
  absl::Status status;
  cluster->Do([&](CoordinatorCore& c) { status = c.Resize(request); });
  return status;
}

// A running job is stopped for a resize to more devices only if the workers have these devices.
TEST(Recovery, AJobGrowsWithTheCluster) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  const auto stops = [&] { return cluster.CountSent([](const auto& m) { return m.has_stop_at(); }); };
  EXPECT_TRUE(absl::IsFailedPrecondition(ResizeToMesh(&cluster, job, 6)));
  cluster.Register(3, "c");
  cluster.Do([](CoordinatorCore& c) { ASSERT_TRUE(c.Drain(WorkerId("c")).ok()); });
  EXPECT_TRUE(absl::IsFailedPrecondition(ResizeToMesh(&cluster, job, 6))) << "a drained worker takes no work";
  cluster.Do([](CoordinatorCore& c) { ASSERT_TRUE(c.Undrain(WorkerId("c")).ok()); });
  EXPECT_EQ(stops(), 0);
  cluster.Gone(3);
  EXPECT_TRUE(ResizeToMesh(&cluster, job, 6).ok())
      << "a worker whose connection has just closed may reconnect, so it counts";
  EXPECT_EQ(stops(), 2);
}

// A waiting job may be resized to any mesh, as a submission may name any mesh.
TEST(Recovery, AWaitingJobMayBeResizedToAnyMesh) {
  Cluster cluster;
  cluster.Register(1, "a");
  const std::string job = cluster.Submit(4);
  cluster.Built();
  EXPECT_TRUE(ResizeToMesh(&cluster, job, 8).ok());
  EXPECT_THAT(
      cluster.coordinator().Why(JobId(job))->text(),
      HasSubstr("compiled. Evidence: it needs 8 devices, the workers have 2. What you can do: start workers with "
                "6 more devices"));
  cluster.Built("larger");
  EXPECT_EQ(cluster.Status(job).reason(), "waits for 8 devices, the workers have 2");
  EXPECT_THAT(cluster.coordinator().Why(JobId(job))->text(), HasSubstr("start workers with 6 more devices"));
}

TEST(Recovery, ResizeStopsWithTheStateSavedAndContinuesOnTheOtherMesh) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  cluster.Steps(1, job, 0, 10);
  const auto resize = [&](int64_t size) { return ResizeToMesh(&cluster, job, size); };
  EXPECT_TRUE(absl::IsInvalidArgument(resize(0)));
  EXPECT_TRUE(resize(4).ok());
  EXPECT_EQ(resize(8),
            absl::FailedPreconditionError(absl::StrCat(
                "job ", job,
                " continues on its 4 devices: found workers with 4 devices that it may use, "
                "expected 8 for mesh dp=8; start workers with 4 more devices (xlad worker), then resize it")));
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_stop_at(); }), 0);
  EXPECT_TRUE(resize(2).ok());
  ASSERT_EQ(cluster.CountSent([](const auto& m) { return m.has_stop_at(); }), 2);
  const int64_t step = cluster.sent.back().message.stop_at().step();
  // The request is durable: it survives a restart of the coordinator.
  const RunningTask task = cluster.Task(job, 11);
  cluster.Restart();
  cluster.sent.clear();
  cluster.Register(1, "a", 1, {task});
  cluster.Register(2, "b", 1, {task});
  cluster.Advance(100);
  ASSERT_EQ(cluster.CountSent([](const auto& m) { return m.has_stop_at(); }), 2);
  const int64_t stop_at = cluster.sent.back().message.stop_at().step();
  EXPECT_LE(stop_at, step + 100);
  cluster.Shard(1, job, stop_at);
  cluster.Shard(2, job, stop_at);
  WorkerMessage stopped;
  cluster.Name(job, stopped.mutable_stopped());
  stopped.mutable_stopped()->set_step(stop_at);
  for (const int64_t connection : {1, 2}) cluster.Handle(connection, stopped);
  cluster.IndexStored();
  EXPECT_EQ(cluster.Status(job).state(), COMPILING);
  EXPECT_EQ(cluster.builds.back().mesh[0].size(), 2);
  cluster.Built("smaller");
  EXPECT_EQ(LastLaunch(cluster).first_step(), stop_at);
  EXPECT_EQ(LastLaunch(cluster).spec().mesh(0).size(), 2);
}

TEST(Recovery, AnotherJobResumesFromTheNewestCheckpoint) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  EXPECT_TRUE(absl::IsFailedPrecondition(cluster.coordinator().jobs().NewestCheckpoint(JobId(job)).status()));
  cluster.CommitCheckpoint(job, 40);
  const auto resume = cluster.coordinator().jobs().NewestCheckpoint(JobId(job));
  ASSERT_TRUE(resume.ok());
  SubmitJobRequest request;
  request.set_client_key("next");
  *request.mutable_spec() = cluster.Spec(2);
  request.mutable_spec()->set_steps(39);
  cluster.Do([&](CoordinatorCore& c) {
    EXPECT_TRUE(absl::IsInvalidArgument(c.Submit(request, *resume).status())) << "the checkpoint has more steps";
  });
  request.mutable_spec()->set_steps(40);
  std::string next;
  cluster.Do([&](CoordinatorCore& c) { next = c.Submit(request, *resume)->job_id(); });
  cluster.Register(3, "c");
  cluster.Built();
  EXPECT_EQ(LastLaunch(cluster).job_id(), next);
  EXPECT_EQ(LastLaunch(cluster).first_step(), 40);
  EXPECT_EQ(LastLaunch(cluster).checkpoint_uri(), "xlad:40");
  // The checkpoint is not removed while another job needs it.
  for (int64_t step = 50; step <= 90; step += 10) cluster.CommitCheckpoint(job, step);
  EXPECT_THAT(cluster.dropped, ElementsAre("xlad:50", "xlad:60", "xlad:70"));
}

TEST(Recovery, WhyExplainsEveryState) {
  Cluster cluster;
  const auto why = [&](const std::string& job) { return cluster.coordinator().Why(JobId(job))->text(); };
  const std::string job = cluster.Submit(4);
  EXPECT_THAT(why(job), HasSubstr("waits for a worker to register"));
  cluster.Register(1, "a");
  cluster.Register(2, "b");
  EXPECT_THAT(why(job), HasSubstr("being compiled"));
  cluster.Built();
  cluster.Ready(1, job);
  EXPECT_THAT(why(job), HasSubstr("not ready yet: b"));
  cluster.Ready(2, job);
  EXPECT_THAT(why(job), HasSubstr("attempt 1 runs at step 0 of 1000"));
  cluster.CommitCheckpoint(job, 10);
  cluster.Gone(2);
  cluster.Fail(1, job, 15, absl::UnavailableError("peer b is gone"), "b");
  const std::string text = why(job);
  for (const char* part :
       {"worker b (ranks 2, 3; host host, pid 102) was lost at step 15", "waits for 4 devices, the workers have 2",
        "continues from step 10, the newest checkpoint", "start workers with 2 more devices"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  cluster.Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Cancel(JobId(job)).ok()); });
  EXPECT_THAT(why(job), HasSubstr("--resume"));
  EXPECT_TRUE(absl::IsNotFound(cluster.coordinator().Why(JobId("nobody")).status()));
}

// Errors are shortened because every answer about a job contains the error of its worker.
TEST(Recovery, ErrorsOfWorkersAreShortened) {
  std::string error = "x";
  while (error.size() < 20'000'000) error += "\u00fc ";  // A character of two bytes and one of one byte.
  for (const bool exits : {false, true}) {
    Cluster cluster;
    const std::string job = cluster.RunningJob(/*attempts=*/1);
    if (exits) {
      WorkerMessage message;
      cluster.Name(job, message.mutable_exited());
      message.mutable_exited()->set_what(error);
      cluster.Handle(1, message);
    } else {
      cluster.Fail(1, job, 15, absl::InternalError(error), "");
    }
    const JobStatus status = cluster.Status(job);
    EXPECT_EQ(status.state(), FAILED);
    EXPECT_THAT(status.reason(), HasSubstr("\u00fc \u00fc"));
    EXPECT_THAT(status.reason(), HasSubstr("... (20000002 bytes)"));
    EXPECT_LT(status.reason().size(), 9000u);
    JobStatus read;
    EXPECT_TRUE(read.ParseFromString(status.SerializeAsString())) << "a character must not be cut in two";
  }
}

TEST(Recovery, AStepTimeOfNanIsUnknown) {
  EXPECT_EQ(StepMargin(0), 16);
  EXPECT_EQ(StepMargin(std::nan("")), 16);
  EXPECT_EQ(StepMargin(std::numeric_limits<double>::infinity()), 2);
  EXPECT_EQ(StepMargin(1e-300), 1'000'002);
  EXPECT_EQ(StepMargin(100), 7);
}

TEST(Recovery, NamesTheMetricsOfAJob) {
  using Result = JobSpec::Result;
  Cluster cluster;
  JobSpec spec = cluster.Spec(4);
  const std::vector<std::pair<std::string, Result::Kind>> results = {
      {"rate", Result::METRIC}, {"w", Result::STATE}, {"loss", Result::LOSS}, {"rows[0]", Result::METRIC}};
  for (const auto& [name, kind] : results) {
    Result* result = spec.add_results();
    result->set_name(name);
    result->set_kind(kind);
  }
  const std::string job = cluster.Submit(spec);
  for (const bool restarted : {false, true}) {
    if (restarted) cluster.Restart();
    EXPECT_THAT(cluster.Status(job).metric_names(), ElementsAre("rate", "loss", "rows[0]"));
  }
}

}  // namespace
}  // namespace xlad::service
