// Jobs in the canonical mode: the mesh never changes, and each device runs one or more logical shards.
#include "collectives/plan/message_type.h"
#include "collectives/plan/spec_proto.h"
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobSpec CanonicalSpec(Cluster* cluster, int64_t shards, int64_t devices) {
  JobSpec spec = cluster->Spec(shards);
  spec.mutable_compile()->set_reduction_mode(CANONICAL);
  spec.set_devices(devices);
  return spec;
}

// The launches of the latest attempt, by worker.
std::map<std::string, LaunchTask> Launches(const Cluster& cluster) {
  std::map<std::string, LaunchTask> launches;
  for (const SendMessage& sent : cluster.sent) {
    if (!sent.message.has_launch()) continue;
    const LaunchTask& launch = sent.message.launch();
    for (const Peer& peer : launch.peers()) {
      if (peer.devices(0) == launch.devices(0).device()) launches[peer.worker_id()] = launch;
    }
  }
  return launches;
}

std::vector<int> Shards(const LaunchTask& launch) {
  std::vector<int> shards;
  for (const LaunchRecord& record : launch.devices()) shards.push_back(record.device());
  return shards;
}

absl::Status ResizeToDevices(Cluster* cluster, const std::string& job, int64_t devices) {
  ResizeJobRequest request;
  request.set_job_id(job);
  request.set_devices(devices);
  absl::Status status;
  cluster->Do([&](CoordinatorCore& c) { status = c.Resize(request); });
  return status;
}

TEST(CanonicalJobs, ADeviceRunsSeveralShards) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(CanonicalSpec(&cluster, 8, 4));
  std::map<std::string, LaunchTask> launches = Launches(cluster);
  EXPECT_THAT(Shards(launches["a"]), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Shards(launches["b"]), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(launches["b"].shards_per_device(), 2);
  EXPECT_EQ(cluster.Status(job).devices(), 4);
  // All four devices are busy until the job ends.
  const std::string other = cluster.Submit(cluster.Spec(1), "other");
  cluster.Built("other");
  EXPECT_EQ(cluster.Status(other).state(), PENDING);
  cluster.Do([&](CoordinatorCore& c) { ASSERT_TRUE(c.Cancel(JobId(job)).ok()); });
  EXPECT_EQ(cluster.Status(other).state(), STARTING);
}

TEST(CanonicalJobs, WithoutANumberTheyTakeTheDevicesThatTheWorkersHave) {
  for (const auto& [shards, devices] : {std::pair(8, 4), std::pair(6, 3), std::pair(5, 1), std::pair(2, 2)}) {
    Cluster cluster;
    cluster.Register(1, "a");
    cluster.Register(2, "b");
    const std::string job = cluster.Submit(CanonicalSpec(&cluster, shards, 0));
    cluster.Built();
    EXPECT_EQ(cluster.Status(job).state(), STARTING);
    EXPECT_EQ(cluster.Status(job).devices(), devices) << shards << " shards";
  }
}

TEST(CanonicalJobs, WithoutANumberTheyTakeTheDevicesOfAllKindsThatTheyName) {
  struct Case {
    int64_t shards;
    std::string named;
    std::vector<std::string> kinds;
    int64_t devices;
  };
  // The workers have 2 devices of kind opaque and 4 of kind cpu.
  for (const Case& c :
       {Case{6, "opaque,cpu", {"opaque", "cpu"}, 6}, Case{4, "opaque,cpu", {"cpu"}, 4},
        Case{5, "opaque,cpu", {"opaque", "cpu"}, 5}, Case{8, "opaque:1,cpu:3", {"opaque", "cpu"}, 4},
        Case{7, "opaque,cpu", {"opaque"}, 1}, Case{6, "opaque", {"opaque"}, 2}, Case{8, "cpu:2", {"cpu"}, 2}}) {
    Cluster cluster;
    cluster.Register(1, "w1", 1, {}, {"opaque"});
    cluster.Register(2, "w2", 1, {}, {"cpu"});
    cluster.Register(3, "w3", 1, {}, {"cpu"});
    JobSpec spec = CanonicalSpec(&cluster, c.shards, 0);
    spec.set_device_name(c.named);
    const std::string job = cluster.Submit(spec);
    SCOPED_TRACE(absl::StrCat(c.shards, " shards on ", c.named));
    ASSERT_EQ(cluster.builds.size(), 1);
    std::vector<std::string> kinds;
    for (const Target& target : cluster.builds[0].targets) kinds.push_back(target.device_kind());
    EXPECT_EQ(kinds, c.kinds);
    cluster.Built("of-the-first");
    EXPECT_EQ(cluster.Status(job).state(), STARTING) << cluster.Status(job).reason();
    EXPECT_EQ(cluster.Status(job).devices(), c.devices);
  }
}

// A sum of 8 elements over 16 ranks. The fastest plan for so few elements sends partial results.
CollectiveSpec SmallSum(tensor::ElementType type) {
  CollectiveSpec sum;
  sum.set_kind(CollectiveSpec::ALL_REDUCE);
  sum.set_reduction(CollectiveSpec::SUM);
  sum.set_mode(CANONICAL);
  sum.set_element_type(static_cast<int>(type));
  sum.add_counts(8);
  auto* const group = sum.add_groups();
  for (int device = 0; device < 16; ++device) group->add_devices(device);
  return sum;
}

TEST(CanonicalJobs, WorkersOfAnOlderVersionGetPlansThatSendElements) {
  for (const tensor::ElementType type : {tensor::ElementType::kBF16, tensor::ElementType::kF8E5M2}) {
    Executable executable;
    *executable.add_collectives() = SmallSum(type);
    *executable.add_collectives() = SmallSum(tensor::ElementType::kF32);
    const auto plans = PlanCollectives(executable, 16);
    ASSERT_TRUE(plans.ok()) << plans.status();
    const auto old_plans = PlansForOldWorkers(executable, 16, *plans);
    ASSERT_TRUE(old_plans.ok()) << old_plans.status();
    const auto spec = *collectives::SpecFromProto(executable.collectives(0), 16);
    const auto plan = *collectives::PlanFromProto((*plans)[0]), old = *collectives::PlanFromProto((*old_plans)[0]);
    EXPECT_EQ(collectives::MessageType(plan, spec), tensor::ElementType::kF32) << plan.ToString();
    EXPECT_EQ(collectives::MessageType(old, spec), type) << old.ToString();
    EXPECT_EQ((*old_plans)[0].schedule_hash(), *collectives::ScheduleHash(old, spec));
    EXPECT_EQ((*plans)[1].SerializeAsString(), (*old_plans)[1].SerializeAsString());
  }
}

// This is also the case if that worker registers after the build.
TEST(CanonicalJobs, OneWorkerOfAnOlderVersionDeterminesThePlansOfAnAttempt) {
  for (const bool is_new : {true, false}) {
    Cluster cluster;
    cluster.Register(1, "a");
    const std::string job = cluster.Submit(CanonicalSpec(&cluster, 4, 4));
    ASSERT_EQ(cluster.builds.size(), 1);
    BuiltProgram built;
    built.executable_digest = "digest";
    built.plan.target = cluster.builds[0].targets[0];
    built.plan.plans.emplace_back().set_algorithm("recursive_doubling");
    built.plan.old_plans.emplace_back().set_algorithm("direct");
    cluster.Do([&](CoordinatorCore& c) { c.OnBuilt(JobId(job), cluster.builds[0].mesh, built); });
    cluster.sends_partials_in_f32 = is_new;
    cluster.Register(2, "b");
    std::map<std::string, LaunchTask> launches = Launches(cluster);
    ASSERT_EQ(launches.size(), 2) << cluster.Status(job).reason();
    for (const auto& [worker, launch] : launches) {
      ASSERT_EQ(launch.plans_size(), 1);
      EXPECT_EQ(launch.plans(0).algorithm(), is_new ? "recursive_doubling" : "direct") << worker;
    }
  }
}

TEST(CanonicalJobs, WhyNamesTheirMode) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(CanonicalSpec(&cluster, 8, 2));
  const WhyJobResponse why = *cluster.coordinator().Why(JobId(job));
  EXPECT_THAT(why.text(), HasSubstr("(mode canonical, 8 logical shards on 2 devices)"));
  EXPECT_EQ(cluster.Status(job).reduction_mode(), CANONICAL);
}

TEST(CanonicalJobs, ResizeChangesTheDevicesAndKeepsTheProgram) {
  Cluster cluster;
  const std::string job = cluster.RunningJob(CanonicalSpec(&cluster, 8, 4));
  EXPECT_THAT(std::string(ResizeToDevices(&cluster, job, 3).message()), HasSubstr("a number that divides the shards"));
  ResizeJobRequest mesh;
  mesh.set_job_id(job);
  *mesh.mutable_mesh() = cluster.Spec(4).mesh();
  cluster.Do([&](CoordinatorCore& c) {
    EXPECT_THAT(std::string(c.Resize(mesh).message()), HasSubstr("xlad resize " + job + " --devices N"));
  });
  EXPECT_THAT(std::string(ResizeToDevices(&cluster, job, 8).message()), HasSubstr("expected 8 for --devices 8"));
  ASSERT_TRUE(ResizeToDevices(&cluster, job, 1).ok());
  cluster.Restart();
  EXPECT_EQ(cluster.JobOf(job).devices, 1) << "the number is in the log";
  EXPECT_EQ(cluster.JobOf(job).executable_digest, "digest");
  EXPECT_EQ(cluster.Status(job).mesh(0).size(), 8);
}

// The reason for which an attempt was stopped names what the next attempt runs on.
TEST(CanonicalJobs, AStoppedAttemptNamesWhatHasChanged) {
  for (const bool canonical : {false, true}) {
    Cluster cluster;
    cluster.Register(1, "a");
    cluster.Register(2, "b");
    const std::string job = cluster.Submit(canonical ? CanonicalSpec(&cluster, 4, 4) : cluster.Spec(4));
    cluster.Built();
    ASSERT_EQ(cluster.Status(job).state(), STARTING);
    for (const int64_t size : {1, 2}) {
      ResizeJobRequest request;
      request.set_job_id(job);
      if (canonical) request.set_devices(size);
      if (!canonical) *request.mutable_mesh() = cluster.Spec(size).mesh();
      cluster.Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Resize(request).ok()); });
      if (!canonical) cluster.Built();
      ASSERT_EQ(cluster.Status(job).state(), STARTING);
    }
    std::vector<std::string> reasons;
    for (const JobEvent& event : cluster.store.events) {
      if (event.has_attempt_ended()) reasons.push_back(event.attempt_ended().reason());
    }
    const std::vector<std::string> of_devices = {"stopped to run on 1 device", "stopped to run on 2 devices"};
    const std::vector<std::string> of_meshes = {"stopped to run on mesh dp=1", "stopped to run on mesh dp=2"};
    EXPECT_EQ(reasons, canonical ? of_devices : of_meshes);
  }
}

TEST(CanonicalJobs, OtherJobsKeepOneDeviceForEachShard) {
  Cluster cluster;
  const std::string job = cluster.RunningJob();
  EXPECT_THAT(std::string(ResizeToDevices(&cluster, job, 2).message()), HasSubstr("the run-to-run mode"));
  EXPECT_EQ(Launches(cluster)["a"].shards_per_device(), 0);
  EXPECT_EQ(cluster.Status(job).devices(), 4);
}

TEST(CanonicalJobs, AfterALossTheyContinueOnFewerDevicesWithTheSameProgram) {
  for (const int64_t asked : {0, 4}) {
    Cluster cluster;
    JobSpec spec = CanonicalSpec(&cluster, 8, asked);
    if (asked > 0) spec.set_on_loss(JobSpec::SHRINK);
    const std::string job = cluster.RunningJob(spec);
    const size_t builds = cluster.builds.size();
    cluster.CommitCheckpoint(job, 10);
    cluster.Gone(2);
    cluster.Fail(1, job, 15, absl::UnavailableError("peer b is gone"), "b");
    cluster.RunFor(15'000, {1});
    EXPECT_EQ(cluster.Status(job).state(), STARTING) << cluster.Status(job).reason();
    EXPECT_EQ(cluster.Status(job).devices(), 2);
    EXPECT_EQ(cluster.Status(job).mesh(0).size(), 8);
    EXPECT_EQ(cluster.builds.size(), builds) << "the program is not compiled again";
    EXPECT_EQ(Launches(cluster)["a"].first_step(), 10);
    EXPECT_EQ(Launches(cluster)["a"].shards_per_device(), 4);
  }
}

}  // namespace
}  // namespace xlad::service
