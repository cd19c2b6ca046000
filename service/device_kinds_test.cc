// Which kind of device a job is built for, and how long it waits for a worker with that kind.
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

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
  cluster.Submit(1, "a", 0, "opaque");
  cluster.Submit(1, "b", 0, "cpu");
  EXPECT_EQ(cluster.build_kinds, (std::vector<std::string>{"opaque", "cpu"}));
}

TEST(DeviceKinds, AJobWaitsIfAWorkerOfItsKindMayStillRegister) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  cluster.Register(2, "w2", 1, {}, {"opaque"});
  const std::string job = cluster.Submit(4);
  cluster.Advance(1000);
  cluster.Register(3, "w3", 1, {}, {"opaque"});
  EXPECT_EQ(cluster.build_kinds, std::vector<std::string>{"opaque"});
  EXPECT_EQ(cluster.Status(job).state(), COMPILING);
}

TEST(DeviceKinds, AJobOfAKindThatNoWorkerHasIsRefused) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  const std::string job = cluster.Submit(2, "key", 0, "opaque");
  cluster.RunFor(5000, {1});
  EXPECT_EQ(cluster.Status(job).state(), FAILED);
  EXPECT_EQ(cluster.Status(job).reason(),
            "no worker has devices of kind opaque; the workers have cpu: 2 on w1; start a worker with --device opaque");
}

// `xlad run` waits longer than other commands for a missing kind, because its own workers may still register. Jobs with
// other problems must not wait that long.
TEST(DeviceKinds, ALongWaitForAMissingKindDelaysNothingElse) {
  CoordinatorOptions options;
  options.missing_kind_grace_ms = 60'000;
  Cluster cluster(options);
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  cluster.Register(2, "w2", 1, {}, {"opaque"});
  const std::string missing = cluster.Submit(2, "missing", 0, "tpu_sim:v5e");
  const std::string too_many = cluster.Submit(8, "too many", 0, "cpu:3,opaque:2");
  cluster.Submit(4, "last resort", 0, "");
  cluster.RunFor(5000, {1, 2});
  EXPECT_EQ(cluster.Status(missing).state(), PENDING);
  EXPECT_EQ(cluster.Status(too_many).state(), FAILED) << "no worker can change that";
  ASSERT_EQ(cluster.builds.size(), 1);
  EXPECT_EQ(cluster.builds[0].targets.size(), 2) << "it takes several kinds as a last resort";
  cluster.RunFor(56'000, {1, 2});
  EXPECT_EQ(cluster.Status(missing).state(), FAILED);
}

}  // namespace
}  // namespace xlad::service
