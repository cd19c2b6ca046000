// Attempts that have run all steps, or have stopped, and whose state cannot be stored.
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

JobSpec SpecWithFolder(Cluster* cluster) {
  JobSpec spec = cluster->Spec(4);
  spec.mutable_checkpoint()->set_uri("file:/ckpt");
  return spec;
}

// Worker b cannot store its part of the state before `step`.
void FailShard(Cluster* cluster, const std::string& job, int64_t step, const absl::Status& error,
               bool must_be_stored = false) {
  WorkerMessage message;
  cluster->Name(job, message.mutable_shard_failed());
  message.mutable_shard_failed()->set_step(step);
  message.mutable_shard_failed()->set_error(std::string(error.message()));
  message.mutable_shard_failed()->set_error_code(error.raw_code());
  message.mutable_shard_failed()->set_must_be_stored(must_be_stored);
  cluster->Handle(2, message);
}

TEST(LastState, AJobWhoseLastStateIsRefusedFails) {
  const absl::Status denied = absl::PermissionDeniedError("cannot make folder /ckpt/x: Permission denied");
  for (const bool is_index : {false, true}) {
    SCOPED_TRACE(is_index);
    Cluster cluster;
    const std::string job = cluster.RunningJob(SpecWithFolder(&cluster));
    cluster.CommitCheckpoint(job, 40);
    const auto refuse = [&] {
      if (!is_index) return FailShard(&cluster, job, 1000, denied);
      const StoreIndex request = cluster.indexes.back();
      cluster.Do([&](CoordinatorCore& c) { c.OnIndexStored(request, denied); });
    };
    if (is_index) {
      for (const int64_t connection : {1, 2}) cluster.Shard(connection, job, 1000);
    }
    refuse();
    for (const char* words :
         {"cannot be stored yet", "/ckpt/x: Permission denied; the job fails if this error persists",
          "make file:/ckpt a folder that all workers and the coordinator can write"}) {
      EXPECT_THAT(cluster.coordinator().Why(JobId(job))->text(), HasSubstr(words));
    }
    cluster.RunFor(30'000, {1, 2});
    refuse();
    cluster.RunFor(31'000, {1, 2});
    EXPECT_EQ(cluster.Status(job).state(), RUNNING) << "no try has failed after a minute";
    refuse();
    cluster.RunFor(1000, {1, 2});
    EXPECT_EQ(cluster.Status(job).state(), FAILED);
    for (const char* words : {"the last state cannot be stored in file:/ckpt: ", is_index ? "coordinator" : "worker b",
                              "/ckpt/x: Permission denied", "the newest checkpoint is of step 40"}) {
      EXPECT_THAT(cluster.Status(job).reason(), HasSubstr(words));
    }
    EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_abort(); }), 2);
  }
}

TEST(LastState, AJobWhoseStateAtAStopIsRefusedFails) {
  const absl::Status denied = absl::PermissionDeniedError("cannot make folder /ckpt/x: Permission denied");
  for (const bool is_index : {false, true}) {
    SCOPED_TRACE(is_index);
    Cluster cluster;
    const std::string job = cluster.RunningJob(SpecWithFolder(&cluster));
    cluster.CommitCheckpoint(job, 40);
    FailShard(&cluster, job, 50, denied);
    cluster.RunFor(61'000, {1, 2});
    FailShard(&cluster, job, 60, denied);
    cluster.RunFor(1000, {1, 2});
    EXPECT_EQ(cluster.Status(job).state(), RUNNING) << "the job continues without these checkpoints";
    cluster.Beat(1, job, 100);
    cluster.Do([](CoordinatorCore& c) { ASSERT_TRUE(c.Drain(WorkerId("a")).ok()); });
    const int64_t step = cluster.sent.back().message.stop_at().step();
    ASSERT_GT(step, 100);
    const auto refuse = [&] {
      if (!is_index) return FailShard(&cluster, job, step, denied, /*must_be_stored=*/true);
      const StoreIndex request = cluster.indexes.back();
      cluster.Do([&](CoordinatorCore& c) { c.OnIndexStored(request, denied); });
    };
    if (is_index) {
      for (const int64_t connection : {1, 2}) cluster.Shard(connection, job, step);
    }
    refuse();
    for (const std::string& words : {absl::StrCat("stops before step ", step, ", and the state there cannot be stored"),
                                     std::string("is drained; 0 of 2 workers have stopped"),
                                     std::string("/ckpt/x: Permission denied; the job fails if this error persists"),
                                     std::string("can write; the state is stored then")}) {
      EXPECT_THAT(cluster.coordinator().Why(JobId(job))->text(), HasSubstr(words));
    }
    cluster.RunFor(61'000, {1, 2});
    EXPECT_EQ(cluster.Status(job).state(), RUNNING) << "no try has failed after a minute";
    refuse();
    cluster.RunFor(1000, {1, 2});
    EXPECT_EQ(cluster.Status(job).state(), FAILED);
    for (const std::string& words :
         {absl::StrCat("the state before step ", step, ", at which the attempt stopped because worker a"),
          std::string("is drained, cannot be stored in file:/ckpt: "), std::string("/ckpt/x: Permission denied"),
          std::string("the newest checkpoint is of step 40")}) {
      EXPECT_THAT(cluster.Status(job).reason(), HasSubstr(words));
    }
  }
}

// For example, the token of a worker was revoked.
TEST(LastState, ACoordinatorThatDoesNotAcceptTheStateIsNotWaitedFor) {
  for (const absl::Status& error :
       {absl::PermissionDeniedError("found a token of role reader, which may not call PutBlob"),
        absl::UnauthenticatedError("found token abc, which does not exist or was revoked"),
        absl::InvalidArgumentError("found blob name \"x\", expected 64 lower-case hex digits")}) {
    Cluster cluster;
    const std::string job = cluster.RunningJob();
    cluster.CommitCheckpoint(job, 40);
    FailShard(&cluster, job, 1000, error, /*must_be_stored=*/true);
    const std::string why = cluster.coordinator().Why(JobId(job))->text();
    EXPECT_THAT(why, HasSubstr(absl::StrCat(std::string(error.message()), "; the job fails if this error persists")));
    EXPECT_THAT(why, HasSubstr("remove the cause that the evidence names; the last state is stored then"));
    EXPECT_THAT(why, Not(HasSubstr("data folder")));
    cluster.RunFor(61'000, {1, 2});
    FailShard(&cluster, job, 1000, error, /*must_be_stored=*/true);
    cluster.RunFor(1000, {1, 2});
    EXPECT_EQ(cluster.Status(job).state(), FAILED);
    for (const std::string& words :
         {absl::StrCat("worker b (ranks 2, 3; host host, pid 102) found: ", std::string(error.message())),
          std::string("expected a coordinator that accepts the state"),
          std::string("the newest checkpoint is of step 40")}) {
      EXPECT_THAT(cluster.Status(job).reason(), HasSubstr(words));
    }
  }
}

// For example, the file system of the data folder has become read-only after a disk error.
TEST(LastState, ADataFolderOfTheCoordinatorThatRefusesIsWaitedFor) {
  const absl::Status read_only = absl::FailedPreconditionError("cannot write /data/blobs/x: Read-only file system");
  for (const char* place : {"", "xlad:"}) {
    Cluster cluster;
    JobSpec spec = cluster.Spec(4);
    spec.mutable_checkpoint()->set_uri(place);
    const std::string job = cluster.RunningJob(spec);
    for (int i = 0; i < 5; ++i) {
      FailShard(&cluster, job, 1000, read_only, /*must_be_stored=*/true);
      cluster.RunFor(30'000, {1, 2});
    }
    EXPECT_EQ(cluster.Status(job).state(), RUNNING);
    const std::string why = cluster.coordinator().Why(JobId(job))->text();
    EXPECT_THAT(why, HasSubstr("Read-only file system"));
    EXPECT_THAT(why, HasSubstr("make the coordinator's data folder a folder that the coordinator can write"));
    EXPECT_THAT(why, Not(HasSubstr("the job fails")));
    cluster.CommitCheckpoint(job, 1000);
    EXPECT_EQ(cluster.Status(job).checkpoint_step(), 1000);
  }
}

TEST(LastState, APlaceThatIsRepairedAfterAMinuteGetsTheState) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(SpecWithFolder(&cluster));
  FailShard(&cluster, job, 1000, absl::PermissionDeniedError("cannot make folder /ckpt/x: Permission denied"));
  cluster.RunFor(61'000, {1, 2});
  for (const int64_t connection : {1, 2}) cluster.Shard(connection, job, 1000);
  cluster.IndexStored();
  EXPECT_EQ(cluster.Status(job).checkpoint_step(), 1000);
}

TEST(LastState, ALastStateIsTriedAgainWhileTheDiskIsFull) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(SpecWithFolder(&cluster));
  FailShard(&cluster, job, 500, absl::PermissionDeniedError("cannot make folder /ckpt/x: Permission denied"));
  const absl::Status full = absl::ResourceExhaustedError("cannot write /ckpt/x: No space left on device");
  FailShard(&cluster, job, 1000, absl::PermissionDeniedError("cannot make folder /ckpt/x: Permission denied"));
  cluster.RunFor(30'000, {1, 2});
  FailShard(&cluster, job, 1000, full);
  cluster.RunFor(300'000, {1, 2});
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  EXPECT_THAT(cluster.Status(job).checkpoint_error(), HasSubstr("of the checkpoint of step 1000 cannot be stored"));
  for (const char* words : {"worker b", "cannot store its part: cannot write /ckpt/x: No space left on device",
                            "make space in file:/ckpt; the last state is stored then"}) {
    EXPECT_THAT(cluster.coordinator().Why(JobId(job))->text(), HasSubstr(words));
  }
  cluster.CommitCheckpoint(job, 1000);
  WorkerMessage finished;
  cluster.Name(job, finished.mutable_finished());
  for (const int64_t connection : {1, 2}) cluster.Handle(connection, finished);
  EXPECT_EQ(cluster.Status(job).state(), SUCCEEDED);
}

// The advice depends on the error, on the place of the checkpoints, and on whether the state is the last one.
TEST(LastState, TheAdviceDependsOnTheError) {
  const struct {
    absl::Status error;
    const char *in_data, *in_folder;
  } cases[] = {
      {absl::ResourceExhaustedError("No space left on device"), "make space on the coordinator's disk; ",
       "make space in file:/ckpt; "},
      {absl::PermissionDeniedError("Read-only file system"), "remove the cause that the evidence names; ",
       "make file:/ckpt a folder that all workers and the coordinator can write; "},
      {absl::FailedPreconditionError("Read-only file system"),
       "make the coordinator's data folder a folder that the coordinator can write; ",
       "remove the cause that the evidence names; "},
      {absl::UnavailableError("Input/output error"), "remove the cause that the evidence names; ",
       "remove the cause that the evidence names; "},
  };
  for (const auto& [error, in_data, in_folder] : cases) {
    for (const bool has_folder : {false, true}) {
      for (const int64_t step : {500, 1000}) {
        Cluster cluster;
        const std::string job = cluster.RunningJob(has_folder ? SpecWithFolder(&cluster) : cluster.Spec(4));
        FailShard(&cluster, job, step, error);
        EXPECT_THAT(cluster.coordinator().Why(JobId(job))->text(),
                    HasSubstr(absl::StrCat(has_folder ? in_folder : in_data,
                                           step == 1000 ? "the last state is stored" : "the next checkpoint")));
      }
    }
  }
}

// As long as its disk is full, the coordinator tries less and less often.
TEST(LastState, TheTriesToStoreAnIndexBecomeRarer) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  for (const int64_t connection : {1, 2}) cluster.Shard(connection, job, 1000);
  size_t tries = 0;
  for (int i = 0; i < 3000; ++i) {
    while (tries < cluster.indexes.size()) {
      const StoreIndex request = cluster.indexes[tries++];
      cluster.Do([&](CoordinatorCore& c) { c.OnIndexStored(request, absl::ResourceExhaustedError("disk full")); });
    }
    cluster.RunFor(100, {1, 2});
  }
  EXPECT_GE(tries, 8u);
  EXPECT_LE(tries, 14u) << "in 300 s";
  cluster.IndexStored();
  EXPECT_EQ(cluster.Status(job).checkpoint_step(), 1000);
}

}  // namespace
}  // namespace xlad::service
