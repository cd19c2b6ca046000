// Builds and the queue of jobs.
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void Cancel(Cluster* cluster, const std::string& job) {
  cluster->Do([&](CoordinatorCore& c) { ASSERT_TRUE(c.Cancel(JobId(job)).ok()); });
}

TEST(Scheduling, AJobThatEndsStopsItsBuild) {
  Cluster cluster;
  cluster.Register(1, "a");
  const std::string job = cluster.Submit(2);
  ASSERT_EQ(cluster.builds.size(), 1u);
  Cancel(&cluster, job);
  EXPECT_THAT(cluster.stopped_builds, ElementsAre(job));
}

// The disk of the coordinator is full, for example. An accepted job waits until its program can be built.
TEST(Scheduling, ABuildThatTheMachineCannotMakeIsRepeated) {
  Cluster cluster;
  cluster.Register(1, "a");
  const std::string job = cluster.Submit(2);
  const auto fail = [&](const absl::Status& error) {
    const StartBuild build = cluster.builds.back();
    cluster.Do([&](CoordinatorCore& c) { c.OnBuilt(build.job, build.mesh, error); });
  };
  int64_t pause_ms = 1000;
  for (size_t builds = 1; builds < 4; ++builds, pause_ms *= 2) {
    fail(absl::UnavailableError("the disk is full"));
    EXPECT_EQ(cluster.Status(job).state(), PENDING);
    EXPECT_THAT(cluster.Status(job).reason(),
                HasSubstr(absl::StrCat("the disk is full; the next try begins after a pause of ", pause_ms, " ms")));
    cluster.RunFor(pause_ms - 200, {1});
    EXPECT_EQ(cluster.builds.size(), builds);
    cluster.RunFor(400, {1});
    ASSERT_EQ(cluster.builds.size(), builds + 1);
  }
  cluster.Built();
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
}

// The executable cannot be read, and the disk is full, so that it cannot be built either.
TEST(Scheduling, AnExecutableIsNotReadAgainDuringThePauseBeforeItsBuild) {
  Cluster cluster;
  cluster.Register(1, "a");
  const std::string job = cluster.Submit(4);
  cluster.Built();
  cluster.Restart();
  cluster.Register(1, "a");
  cluster.Advance(1000);
  const auto fail_to_read = [&] {
    cluster.Do([](CoordinatorCore& c) { c.OnPlanLoaded("digest", absl::DataLossError("damaged")); });
  };
  ASSERT_EQ(cluster.loads.size(), 1u);
  fail_to_read();
  ASSERT_EQ(cluster.builds.size(), 2u);
  const StartBuild build = cluster.builds.back();
  const absl::Status error = absl::UnavailableError("the disk is full");
  cluster.Do([&](CoordinatorCore& c) { c.OnBuilt(build.job, build.mesh, error); });
  cluster.RunFor(800, {1});
  EXPECT_EQ(cluster.loads.size(), 1u);
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr("the disk is full; the next try begins after a pause of 1000"));
  cluster.RunFor(400, {1});
  ASSERT_EQ(cluster.loads.size(), 2u);
  fail_to_read();
  ASSERT_EQ(cluster.builds.size(), 3u);
  cluster.Built();
  EXPECT_EQ(cluster.Status(job).reason(), "waits for 4 devices, the workers have 2");
  cluster.Register(2, "b");
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
}

TEST(Scheduling, TheResultOfABuildForAnEarlierMeshIsIgnored) {
  Cluster cluster;
  cluster.Register(1, "a");
  cluster.Register(2, "b");
  const std::string job = cluster.Submit(4);
  const StartBuild first = cluster.builds.back();
  ResizeJobRequest request;
  request.set_job_id(job);
  *request.mutable_mesh() = cluster.Spec(2).mesh();
  cluster.Do([&](CoordinatorCore& c) { ASSERT_TRUE(c.Resize(request).ok()); });
  EXPECT_THAT(cluster.stopped_builds, ElementsAre(job));
  ASSERT_EQ(cluster.builds.size(), 2u);
  // The first build ends before it can be stopped.
  cluster.Do([&](CoordinatorCore& c) {
    c.OnBuilt(first.job, first.mesh, BuiltProgram{"old", 1, {}, false, {first.targets[0], {}}, {}, {}});
  });
  EXPECT_EQ(cluster.builds.size(), 2u) << "the second one is still under way";
  EXPECT_EQ(cluster.Status(job).state(), COMPILING);
  cluster.Built("new");
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
  EXPECT_EQ(cluster.JobOf(job).executable_digest, "new");
}

TEST(Scheduling, JobsBehindAWaitingJobNameItUntilItRuns) {
  Cluster cluster;
  cluster.Register(1, "a");
  const std::string running = cluster.Submit(2, "1");
  cluster.Built("one");
  cluster.Start(running, {1});
  const std::string large = cluster.Submit(2, "2");
  cluster.Built("two");
  const std::string small = cluster.Submit(1, "3");
  EXPECT_THAT(cluster.Status(large).reason(), HasSubstr("waits for 2 devices, 0 are free of 2"));
  EXPECT_THAT(cluster.Status(small).reason(),
              StartsWith("waits behind job " + large + ", which is pending: waits for 2 devices"));
  EXPECT_THAT(cluster.coordinator().Why(JobId(small))->text(), HasSubstr("waits behind job " + large));
  Cancel(&cluster, running);
  EXPECT_EQ(cluster.Status(large).state(), STARTING);
  EXPECT_EQ(cluster.Status(small).state(), COMPILING);
}

// A job is scheduled again by the event for which it waits: workers register or are undrained, or a plan has been read.
TEST(Scheduling, JobsAreWokenByWhatTheyWaitFor) {
  Cluster cluster;
  cluster.Register(1, "a");
  std::vector<std::string> large;
  for (int i = 0; i < 50; ++i) {
    large.push_back(cluster.Submit(4, absl::StrCat("large ", i)));
    cluster.Built("digest");
    EXPECT_EQ(cluster.Status(large.back()).reason(), "waits for 4 devices, the workers have 2");
  }
  const std::string small = cluster.Submit(2, "small");
  cluster.Built("small");
  EXPECT_EQ(cluster.Status(small).state(), STARTING) << "the large jobs do not block it";
  cluster.Register(2, "b");
  EXPECT_THAT(cluster.Status(large[0]).reason(), HasSubstr("waits for 4 devices, 2 are free of 4"));
  EXPECT_THAT(cluster.Status(large[1]).reason(), StartsWith("waits behind job " + large[0]));
  cluster.Do([](CoordinatorCore& c) { ASSERT_TRUE(c.Drain(WorkerId("b")).ok()); });
  EXPECT_EQ(cluster.Status(large[0]).reason(), "waits for 4 devices, the workers have 2");
  Cancel(&cluster, small);
  EXPECT_EQ(cluster.Status(large[0]).state(), PENDING);
  cluster.Do([](CoordinatorCore& c) { ASSERT_TRUE(c.Undrain(WorkerId("b")).ok()); });
  EXPECT_EQ(cluster.Status(large[0]).state(), STARTING);

  // After the restart, the plan of the program is read when the first job that needs it can be placed.
  cluster.Restart();
  cluster.Register(1, "a", 7);
  cluster.Register(2, "b", 7);
  cluster.Advance(1000);
  ASSERT_FALSE(cluster.loads.empty());
  EXPECT_EQ(cluster.Status(large[0]).state(), PENDING);
  cluster.Do([](CoordinatorCore& c) { c.OnPlanLoaded("digest", PlannedProgram()); });
  EXPECT_EQ(cluster.Status(large[0]).state(), STARTING);
  EXPECT_EQ(std::count(cluster.loads.begin(), cluster.loads.end(), "digest"), 1)
      << "all jobs wait for the same read of the plan";
  Cancel(&cluster, large[0]);
  EXPECT_EQ(cluster.Status(large[1]).state(), STARTING) << "the others were woken as well";
}

TEST(Scheduling, NewJobsAreScheduledAfterOlderJobs) {
  Cluster cluster;
  cluster.Register(1, "a");
  const std::string running = cluster.Submit(1, "1");
  cluster.Built("one");
  cluster.Start(running, {1});
  const std::string too_large = cluster.Submit(8, "2");
  EXPECT_EQ(cluster.Status(too_large).state(), COMPILING);
  cluster.Built("two");
  EXPECT_EQ(cluster.Status(too_large).state(), PENDING);
  const std::string fits = cluster.Submit(1, "3");
  EXPECT_EQ(cluster.Status(fits).state(), COMPILING) << "a job that is too large for the cluster does not block others";
  cluster.Built("three");
  EXPECT_EQ(cluster.Status(fits).state(), STARTING);
  // In one batch of events, two jobs are submitted and one of them is canceled.
  SubmitJobRequest first, second;
  first.set_client_key("4");
  second.set_client_key("5");
  *first.mutable_spec() = *second.mutable_spec() = cluster.Spec(1);
  std::string stays;
  cluster.Do([&](CoordinatorCore& c) {
    ASSERT_TRUE(c.Cancel(JobId(c.Submit(first)->job_id())).ok());
    stays = c.Submit(second)->job_id();
  });
  EXPECT_EQ(cluster.Status(stays).state(), COMPILING);
}

TEST(Scheduling, AMessageWithoutGenerationIsStale) {
  Cluster cluster;
  cluster.Register(1, "a");
  const std::string job = cluster.Submit(2);
  cluster.Built();
  WorkerMessage ready;
  cluster.Name(job, ready.mutable_ready());
  ready.mutable_ready()->set_generation(0);
  cluster.Handle(1, ready);
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
  cluster.Start(job, {1});
}

}  // namespace
}  // namespace xlad::service
