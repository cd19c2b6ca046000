// Jobs on workers whose devices run different code: several kinds of device, several models of CPU.
#include "service/jobs/why.h"
#include "service/placement/placement.h"
#include "service/testing/cluster.h"
#include "service/testing/target.h"

namespace xlad::service {
namespace {

constexpr char kOldCpu[] = "cpu/znver3", kNewCpu[] = "cpu/znver5";

std::string Why(Cluster* cluster, const std::string& job) {
  const Context& context = cluster->coordinator().context();
  return WhyJob(context, *context.jobs.Find(JobId(job)), "").text();
}

TEST(DeviceTargets, AJobTakesTwoModelsOfCpuAfterAGracePeriod) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {kOldCpu});
  cluster.Register(2, "w2", 1, {}, {kNewCpu});
  const std::string job = cluster.Submit(4);
  EXPECT_TRUE(cluster.builds.empty()) << "more workers of one model may register";
  EXPECT_EQ(cluster.Status(job).reason(),
            "waits for 4 devices of the same kind and CPU model; later it accepts a mix; the workers have "
            "cpu (znver3): 2 on w1; cpu (znver5): 2 on w2");
  cluster.RunFor(5000, {1, 2});
  ASSERT_EQ(cluster.builds.size(), 1);
  ASSERT_EQ(cluster.builds[0].targets.size(), 2);
  EXPECT_EQ(cluster.builds[0].targets[0].cpu(), "znver3");
  EXPECT_EQ(cluster.builds[0].targets[1].cpu(), "znver5");
  cluster.Built();
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
}

TEST(DeviceTargets, AJobIsBuiltForTheModelOfCpuThatHasEnoughDevices) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {kOldCpu});
  cluster.Register(2, "w2", 1, {}, {kNewCpu});
  cluster.Register(3, "w3", 1, {}, {kNewCpu});
  cluster.Submit(4, "any");
  ASSERT_EQ(cluster.builds.size(), 1);
  EXPECT_EQ(cluster.builds[0].targets[0].cpu(), "znver5");
  cluster.Submit(4, "cpu", 0, "cpu");
  ASSERT_EQ(cluster.builds.size(), 2);
  EXPECT_EQ(cluster.builds[1].targets[0].cpu(), "znver5");
}

TEST(DeviceTargets, ABuiltJobIsBuiltAgainIfOnlyAnotherTargetHasEnoughDevices) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {kOldCpu});
  const std::string job = cluster.Submit(4);
  ASSERT_EQ(cluster.builds.size(), 1);
  cluster.Built();
  EXPECT_EQ(cluster.Status(job).reason(), "waits for 4 devices, the workers have 2");
  cluster.Register(2, "w2", 1, {}, {kNewCpu});
  cluster.Register(3, "w3", 1, {}, {kNewCpu});
  EXPECT_EQ(cluster.Status(job).reason(),
            "waits for 4 devices, the workers have 2 that run code for cpu (znver3), the target of its executable");
  EXPECT_EQ(cluster.builds.size(), 1) << "more workers of its target may register";
  cluster.RunFor(5000, {1, 2, 3});
  ASSERT_EQ(cluster.builds.size(), 2);
  EXPECT_EQ(cluster.builds[1].targets[0].cpu(), "znver5");
  cluster.Built("digest-2");
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
}

TEST(DeviceTargets, ABuiltJobIsBuiltForSeveralTargetsIfOnlyTheyTogetherHaveEnough) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {kOldCpu});
  const std::string job = cluster.Submit(4);
  cluster.Built();
  cluster.Register(2, "w2", 1, {}, {kNewCpu});
  EXPECT_THAT(cluster.Status(job).reason(),
              ::testing::StartsWith("waits for 4 devices of the same kind and CPU model; "));
  EXPECT_THAT(Why(&cluster, job), ::testing::HasSubstr("cpu (znver5): 2 on w2"));
  cluster.RunFor(1000, {1, 2});
  EXPECT_EQ(cluster.builds.size(), 1);
  cluster.RunFor(5000, {1, 2});
  ASSERT_EQ(cluster.builds.size(), 2);
  EXPECT_EQ(cluster.builds[1].targets.size(), 2);
  cluster.Built("digest-2");
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
}

TEST(DeviceTargets, ABuiltJobDoesNotTakeSeveralTargetsIfMoreWorkersOfItsTargetRegister) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {kOldCpu});
  const std::string job = cluster.Submit(4);
  cluster.Built();
  cluster.Register(2, "w2", 1, {}, {kNewCpu});
  cluster.RunFor(1000, {1, 2});
  cluster.Register(3, "w3", 1, {}, {kOldCpu});
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
  EXPECT_EQ(cluster.builds.size(), 1);
}

TEST(DeviceTargets, AJobThatWaitsForItsWorkersKeepsItsTarget) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {kOldCpu});
  JobSpec spec = cluster.Spec(2);
  spec.set_on_loss(JobSpec::WAIT);
  const std::string job = cluster.Submit(spec);
  cluster.Built();
  ASSERT_EQ(cluster.Status(job).state(), STARTING);
  cluster.Gone(1);
  cluster.Register(2, "w2", 1, {}, {kNewCpu});
  cluster.RunFor(60'000, {2});
  EXPECT_EQ(cluster.Status(job).state(), PENDING);
  EXPECT_THAT(cluster.Status(job).reason(), ::testing::EndsWith("waits for worker w1 (--on-loss wait)"));
  EXPECT_EQ(cluster.builds.size(), 1);
  cluster.Register(3, "w1", /*incarnation=*/2, {}, {kOldCpu});
  cluster.RunFor(5000, {2, 3});
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
}

// During an update, workers of the old and the new version have devices of one target.
TEST(DeviceTargets, CodeForWorkersOfAnOlderVersionHasNoNewOps) {
  Cluster cluster;
  cluster.has_dots = true;
  cluster.Register(1, "w1", 1, {}, {"cuda/sm_90"});
  const std::string first = cluster.Submit(2, "first");
  cluster.Built();
  EXPECT_EQ(cluster.Status(first).state(), STARTING);
  const std::string job = cluster.Submit(4, "second");
  ASSERT_EQ(cluster.builds.size(), 2);
  EXPECT_TRUE(cluster.builds[1].targets[0].has_dots_of_f64_and_s8());
  cluster.Built("digest-2");
  cluster.has_dots = false;
  cluster.Register(2, "w2", 1, {}, {"cuda/sm_90"});
  ASSERT_EQ(cluster.builds.size(), 3) << "the job could be placed on the older worker";
  ASSERT_EQ(cluster.builds[2].targets.size(), 1);
  EXPECT_FALSE(cluster.builds[2].targets[0].has_dots_of_f64_and_s8());
  cluster.Built("digest-3");
  cluster.has_dots = true;
  cluster.Register(3, "w3", 1, {}, {"cuda/sm_90"});
  EXPECT_EQ(cluster.Status(job).state(), STARTING) << "newer workers run code without these ops";
  EXPECT_EQ(cluster.builds.size(), 3);
}

TEST(DeviceTargets, AnExecutableThatNoWorkerCanRunIsRefused) {
  Executable executable;
  *executable.mutable_target() = TargetOf("cpu", "znver3");
  EXPECT_TRUE(CheckCompiledFor(executable, TargetOf("cpu", "znver3")).ok());
  for (const Target& other : {TargetOf("cpu", "znver5"), TargetOf("opaque", "znver3"), TargetOf("cpu", "")}) {
    const absl::Status status = CheckCompiledFor(executable, other);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("found an executable for cpu (znver3)"));
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("expected one for " + TargetText(other)));
  }
}

}  // namespace
}  // namespace xlad::service
