// Jobs that start on quickly compiled code: when they do, how their workers get the optimized code, failures, restarts.
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class QuickCodeTest : public ::testing::Test {
 protected:
  QuickCodeTest() {
    cluster_.replaces_code = true;
    cluster_.Register(1, "a");
    cluster_.Register(2, "b");
  }

  // Reports the result of the latest build.
  void Built(const std::string& digest, bool quick, const std::string& compiler = "compiler") {
    const StartBuild build = cluster_.builds.back();
    const BuiltProgram built{digest, 200, {}, false, {build.targets[0], {}}, {"dp"}, {}, quick, compiler};
    cluster_.Do([&](CoordinatorCore& c) { c.OnBuilt(build.job, build.mesh, built); });
  }
  static BuiltProgram OptimizedProgram(const std::string& digest, const std::string& compiler = "compiler") {
    return {digest, 700, {}, false, {}, {}, {}, false, compiler};
  }
  void Optimized(const StartOptimizing& request, const absl::StatusOr<BuiltProgram>& built) {
    cluster_.Do([&](CoordinatorCore& c) { c.OnOptimized(request, built); });
  }
  void Optimized(const std::string& digest) {
    Optimized(cluster_.optimizings.back(), OptimizedProgram(digest));
  }
  std::string StartedJob() {
    const size_t before = cluster_.optimizings.size();
    const std::string job = cluster_.Submit(4, absl::StrCat("key", cluster_.CountJobs()));
    EXPECT_TRUE(cluster_.builds.back().quick);
    Built("quick", /*quick=*/true);
    cluster_.Advance(100);
    EXPECT_THAT(cluster_.optimizings, SizeIs(before)) << "it would slow the start down";
    cluster_.Start(job, {1, 2});
    cluster_.Advance(100);
    EXPECT_THAT(cluster_.optimizings, SizeIs(before + 1));
    return job;
  }
  // The connections to which the code was sent.
  std::vector<int64_t> Receivers(const std::string& digest) {
    std::vector<int64_t> connections;
    for (const SendMessage& sent : cluster_.sent) {
      if (sent.message.replace_code().executable_digest() == digest) connections.push_back(sent.connection.value());
    }
    return connections;
  }
  std::string LaunchedDigest() {
    std::string digest;
    for (const SendMessage& sent : cluster_.sent) {
      if (sent.message.has_launch()) digest = sent.message.launch().executable_digest();
    }
    return digest;
  }
  std::vector<std::string> Events(const std::string& job) {
    std::vector<std::string> texts;
    const auto events = OpenMemoryJobLog(&cluster_.store)->ReadEventsOf(JobId(job), 0, 1000);
    for (const JobEvent& event : *events) texts.push_back(Describe(event));
    return texts;
  }
  std::string Why(const std::string& job) { return cluster_.coordinator().Why(JobId(job))->text(); }
  RunningTask Task(const std::string& job, int64_t step) { return cluster_.Task(job, step); }

  Cluster cluster_;
};

TEST_F(QuickCodeTest, OptimizedCodeReplacesQuickCodeOnAllWorkers) {
  for (const int64_t first_optimized : {0, 1, 7, 50}) {
    cluster_.sent.clear();
    const std::string job = StartedJob();
    EXPECT_EQ(LaunchedDigest(), "quick");
    EXPECT_TRUE(cluster_.Status(job).quick_code());
    EXPECT_THAT(cluster_.Status(job).reason(), HasSubstr("until the optimized code is compiled"));
    EXPECT_THAT(Why(job), HasSubstr("runs quickly compiled code"));
    if (first_optimized > 0) cluster_.Steps(1, job, 0, first_optimized, /*quick_code=*/true);
    EXPECT_THAT(Receivers("optimized"), IsEmpty());
    Optimized("optimized");
    EXPECT_THAT(Receivers("optimized"), ElementsAre(1, 2));
    EXPECT_THAT(cluster_.Status(job).reason(), HasSubstr("until the workers have loaded the optimized code"));
    cluster_.Steps(1, job, first_optimized, first_optimized + 10);
    EXPECT_FALSE(cluster_.Status(job).quick_code());
    EXPECT_EQ(cluster_.Status(job).reason(), "");
    cluster_.Steps(1, job, first_optimized + 10, first_optimized + 20);
    const std::vector<std::string> events = Events(job);
    EXPECT_THAT(events.back(), absl::StrCat("training started on quickly compiled code; optimized code from step ",
                                            first_optimized));
    EXPECT_EQ(cluster_.Status(job).compile_ms(), 200) << "the time until the job could start";
    cluster_.Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Cancel(JobId(job)).ok()); });
  }
}

TEST_F(QuickCodeTest, LaterAttemptsStartOnTheOptimizedCode) {
  const std::string job = StartedJob();
  cluster_.Steps(1, job, 0, 3, /*quick_code=*/true);
  Optimized("optimized");
  cluster_.Fail(1, job, 3, absl::UnavailableError("lost"), "");
  EXPECT_EQ(LaunchedDigest(), "optimized");
  cluster_.Start(job, {1, 2});
  EXPECT_FALSE(cluster_.Status(job).quick_code());
  cluster_.Steps(1, job, 0, 3);
  EXPECT_THAT(Receivers("optimized"), ElementsAre(1, 2)) << "only in the first attempt";
  EXPECT_THAT(cluster_.optimizings, SizeIs(1));
}

// The second build may end before the workers are ready, or while the job waits for devices.
TEST_F(QuickCodeTest, CodeThatIsReadyBeforeTheStartIsSentAtTheStart) {
  const std::string first = StartedJob();
  const auto wait = [&](const std::string& name) {
    const std::string job = cluster_.Submit(4, name);
    Built(name + "-quick", /*quick=*/true);
    cluster_.Advance(100);
    return job;
  };
  const std::string second = wait("second");
  cluster_.Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Cancel(JobId(first)).ok()); });
  EXPECT_EQ(LaunchedDigest(), "second-quick");
  Optimized("second-optimized");
  EXPECT_THAT(Receivers("second-optimized"), IsEmpty());
  cluster_.Start(second, {1, 2});
  EXPECT_THAT(Receivers("second-optimized"), ElementsAre(1, 2));

  const std::string third = wait("third");
  Optimized("third-optimized");
  cluster_.Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Cancel(JobId(second)).ok()); });
  EXPECT_EQ(LaunchedDigest(), "third-optimized");
  cluster_.Start(third, {1, 2});
  EXPECT_THAT(Receivers("third-optimized"), IsEmpty());
}

// The disk of the coordinator is full, for example.
TEST_F(QuickCodeTest, ASecondBuildThatTheMachineCannotMakeIsRepeated) {
  const std::string job = StartedJob();
  int64_t pause_ms = 1000;
  for (size_t builds = 1; builds < 3; ++builds, pause_ms *= 2) {
    Optimized(cluster_.optimizings.back(), absl::UnavailableError("the disk is full"));
    cluster_.RunFor(pause_ms - 200, {1, 2});
    EXPECT_THAT(cluster_.optimizings, SizeIs(builds));
    cluster_.RunFor(400, {1, 2});
    ASSERT_THAT(cluster_.optimizings, SizeIs(builds + 1));
  }
  EXPECT_TRUE(cluster_.Status(job).quick_code());
  Optimized("optimized");
  EXPECT_THAT(Receivers("optimized"), ElementsAre(1, 2));
}

TEST_F(QuickCodeTest, APauseBeforeASecondBuildDoesNotDelayTheBuildForAnotherMesh) {
  const std::string job = StartedJob();
  const absl::Status error = absl::UnavailableError("the disk is full");
  for (const int64_t pause_ms : {1000, 2000}) {
    Optimized(cluster_.optimizings.back(), error);
    cluster_.RunFor(pause_ms + 200, {1, 2});
  }
  ASSERT_THAT(cluster_.optimizings, SizeIs(3));
  Optimized(cluster_.optimizings.back(), error);  // The next pause lasts 4 s.
  ResizeJobRequest request;
  request.set_job_id(job);
  *request.add_mesh() = cluster_.Spec(2).mesh(0);
  cluster_.Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Resize(request).ok()); });
  cluster_.Fail(1, job, 3, absl::UnavailableError("lost"), "");
  cluster_.RunFor(2000, {1, 2});
  ASSERT_THAT(cluster_.builds, SizeIs(2));
  Built("smaller", /*quick=*/true);
  cluster_.Start(job, {1});
  cluster_.Advance(100);
  EXPECT_THAT(cluster_.optimizings, SizeIs(4)) << "the pause was that of the old program";
}

TEST_F(QuickCodeTest, TrainingContinuesIfTheSecondBuildFails) {
  const std::string job = StartedJob();
  Optimized(cluster_.optimizings.back(), absl::ResourceExhaustedError("the build needs more memory"));
  EXPECT_EQ(cluster_.Status(job).state(), RUNNING);
  EXPECT_THAT(Events(job).back(), HasSubstr("on quickly compiled code; it could not be optimized: the build"));
  EXPECT_THAT(Why(job), HasSubstr("could not be optimized: the build needs more memory"));
  cluster_.Restart();
  cluster_.Advance(100);
  EXPECT_THAT(cluster_.optimizings, SizeIs(1)) << "the error would be the same";
}

// A coordinator of another version compiles code whose bits may differ.
TEST_F(QuickCodeTest, CodeOfAnotherCompilerDoesNotReplaceQuickCode) {
  for (const auto& [first, second] : {std::pair("1", "2"), std::pair("", "2"), std::pair("1", ""), std::pair("", "")}) {
    cluster_.sent.clear();
    const std::string job = cluster_.Submit(4, absl::StrCat(first, "to", second));
    Built("quick", /*quick=*/true, first);
    cluster_.Start(job, {1, 2});
    cluster_.Restart();
    cluster_.Register(1, "a", 1, {Task(job, 5)});
    cluster_.Register(2, "b", 1, {Task(job, 5)});
    cluster_.Advance(100);
    Optimized(cluster_.optimizings.back(), OptimizedProgram("optimized", second));
    EXPECT_THAT(Receivers("optimized"), IsEmpty());
    EXPECT_EQ(cluster_.Status(job).state(), RUNNING);
    EXPECT_EQ(cluster_.JobOf(job).executable_digest, "quick") << "later attempts start on the same code";
    EXPECT_THAT(Why(job), HasSubstr("could not be optimized: found code compiled by build "));
    cluster_.Restart();
    cluster_.Register(1, "a", 1, {Task(job, 5)});
    cluster_.Register(2, "b", 1, {Task(job, 5)});
    cluster_.Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Cancel(JobId(job)).ok()); });
  }
}

// The result of a build that was stopped arrives after the start of the next one.
TEST_F(QuickCodeTest, AResultOfAnEarlierBuildIsNotUsed) {
  const std::string job = StartedJob();
  const StartOptimizing old = cluster_.optimizings.back();
  ResizeJobRequest request;
  request.set_job_id(job);
  *request.add_mesh() = cluster_.Spec(2).mesh(0);
  cluster_.Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Resize(request).ok()); });
  cluster_.Fail(1, job, 3, absl::UnavailableError("lost"), "");
  cluster_.RunFor(2000, {1, 2});
  Built("smaller", /*quick=*/true);
  cluster_.Start(job, {1});
  cluster_.Advance(100);
  EXPECT_EQ(cluster_.optimizings.back().executable_digest, "smaller");
  Optimized(old, OptimizedProgram("optimized"));
  EXPECT_EQ(cluster_.JobOf(job).executable_digest, "smaller");
  Optimized("smaller-optimized");
  EXPECT_EQ(cluster_.JobOf(job).executable_digest, "smaller-optimized");
  EXPECT_THAT(Receivers("smaller-optimized"), ElementsAre(1));
}

// A worker of an older version may register after the build. The job then waits until its optimized code is built.
TEST_F(QuickCodeTest, WorkersThatCannotReplaceCodeGetNoQuickCode) {
  const std::string first = StartedJob();
  const std::string job = cluster_.Submit(4, "second");
  Built("second-quick", /*quick=*/true);
  cluster_.Advance(100);
  const size_t optimizings = cluster_.optimizings.size();
  cluster_.replaces_code = false;
  cluster_.Register(3, "c");
  cluster_.Register(4, "d");
  EXPECT_EQ(LaunchedDigest(), "quick");
  EXPECT_EQ(cluster_.Status(job).state(), COMPILING);
  EXPECT_THAT(cluster_.stopped_builds, ElementsAre(job));
  EXPECT_EQ(cluster_.builds.back().job, JobId(job));
  EXPECT_FALSE(cluster_.builds.back().quick);
  Built("second-optimized", /*quick=*/false);
  EXPECT_EQ(LaunchedDigest(), "second-optimized");
  cluster_.Start(job, {3, 4});
  cluster_.Advance(100);
  EXPECT_THAT(cluster_.optimizings, SizeIs(optimizings));
  EXPECT_FALSE(cluster_.Status(job).quick_code());
}

// A worker of an older version does not say which code a step has run.
TEST_F(QuickCodeTest, StepsOfWorkersThatCannotReplaceCodeAreNotOnOptimizedCode) {
  const std::string job = StartedJob();
  Optimized("optimized");
  cluster_.replaces_code = false;
  cluster_.Register(3, "a", 1, {Task(job, 5)});
  cluster_.Steps(3, job, 0, 5);
  EXPECT_TRUE(cluster_.Status(job).quick_code());
  cluster_.Steps(2, job, 5, 6);
  EXPECT_FALSE(cluster_.Status(job).quick_code());
}

TEST_F(QuickCodeTest, StepsDoNotHideTheErrorOfTheSecondBuild) {
  const std::string job = StartedJob();
  cluster_.Steps(1, job, 0, 5);
  EXPECT_TRUE(cluster_.Status(job).quick_code()) << "there is no optimized code yet";
  Optimized(cluster_.optimizings.back(), absl::InternalError("the compiler crashed"));
  cluster_.Steps(1, job, 5, 9);
  EXPECT_TRUE(cluster_.Status(job).quick_code());
  EXPECT_THAT(Why(job), HasSubstr("could not be optimized: the compiler crashed"));
}

TEST_F(QuickCodeTest, TheSecondBuildEndsWithTheJob) {
  const std::string job = StartedJob();
  const StartOptimizing request = cluster_.optimizings.back();
  cluster_.Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Cancel(JobId(job)).ok()); });
  EXPECT_THAT(cluster_.stopped_builds, ElementsAre(job));
  const size_t events = Events(job).size();
  Optimized(request, OptimizedProgram("optimized"));
  EXPECT_EQ(Events(job).size(), events);
}

TEST_F(QuickCodeTest, ARestartedCoordinatorBuildsAgainAndSendsAgain) {
  const std::string job = StartedJob();
  cluster_.Restart();
  cluster_.Advance(100);
  EXPECT_THAT(cluster_.optimizings, SizeIs(2));
  EXPECT_EQ(cluster_.optimizings.back().executable_digest, "quick");
  cluster_.Register(3, "a", 1, {Task(job, 5)});
  Optimized("optimized");  // Worker b has not reconnected yet.
  EXPECT_THAT(Receivers("optimized"), ElementsAre(3));
  cluster_.Restart();
  cluster_.Advance(100);
  EXPECT_THAT(cluster_.optimizings, SizeIs(2)) << "the optimized code is in the log";
  cluster_.Register(4, "b", 1, {Task(job, 5)});
  cluster_.Register(5, "a", 1, {Task(job, 5)});
  EXPECT_THAT(Receivers("optimized"), ElementsAre(3, 4, 5));
  cluster_.Steps(5, job, 0, 6, /*quick_code=*/true);
  EXPECT_TRUE(cluster_.Status(job).quick_code());
  cluster_.Steps(5, job, 6, 8);
  EXPECT_FALSE(cluster_.Status(job).quick_code());
  cluster_.Restart();
  EXPECT_FALSE(cluster_.Status(job).quick_code());
}

TEST_F(QuickCodeTest, AResizedJobIsBuiltAgain) {
  const std::string job = StartedJob();
  const StartOptimizing old = cluster_.optimizings.back();
  ResizeJobRequest request;
  request.set_job_id(job);
  *request.add_mesh() = cluster_.Spec(2).mesh(0);
  cluster_.Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Resize(request).ok()); });
  EXPECT_THAT(cluster_.stopped_builds, ElementsAre(job));
  Optimized(old, OptimizedProgram("optimized"));
  EXPECT_THAT(Receivers("optimized"), IsEmpty());
  EXPECT_EQ(cluster_.JobOf(job).executable_digest, "") << "there is no executable for the new mesh yet";
}

TEST_F(QuickCodeTest, JobsThatMustNotOrCannotStartOnQuickCodeDoNot) {
  JobSpec spec = cluster_.Spec(4);
  spec.set_compile_tier(JobSpec::OPTIMIZED);
  cluster_.Submit(spec, "optimized");
  EXPECT_FALSE(cluster_.builds.back().quick);
  cluster_.replaces_code = false;
  cluster_.Register(3, "c");  // A worker of an older version.
  cluster_.Submit(4, "old worker");
  EXPECT_FALSE(cluster_.builds.back().quick);
}

// All kernels were in the cache, so the quick build has made the optimized executable.
TEST_F(QuickCodeTest, CachedCodeIsNotBuiltTwice) {
  const std::string job = cluster_.Submit(4);
  Built("optimized", /*quick=*/false);
  cluster_.Start(job, {1, 2});
  cluster_.Steps(1, job, 0, 3);
  EXPECT_THAT(cluster_.optimizings, IsEmpty());
  EXPECT_FALSE(cluster_.Status(job).quick_code());
}

}  // namespace
}  // namespace xlad::service
