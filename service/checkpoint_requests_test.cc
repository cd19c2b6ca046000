// Requests for checkpoints that a lost connection or a restart of the coordinator must not prevent.
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

// Submits and starts a job with a checkpoint every 10 s, whose workers have finished 10 steps.
std::string JobWithCheckpoints(Cluster* cluster) {
  JobSpec spec = cluster->Spec(4);
  spec.mutable_checkpoint()->set_every_ms(10'000);
  const std::string job = cluster->RunningJob(spec);
  cluster->Steps(1, job, 0, 10);
  return job;
}

int CheckpointRequests(const Cluster& cluster) {
  return cluster.CountSent([](const auto& message) { return message.has_checkpoint_at(); });
}

TEST(CheckpointRequests, AreRepeatedAfterAReconnection) {
  Cluster cluster;
  const std::string job = JobWithCheckpoints(&cluster);
  cluster.RunFor(10'000, {1, 2});
  ASSERT_EQ(CheckpointRequests(cluster), 2);
  const int64_t step = cluster.sent.back().message.checkpoint_at().step();
  for (const auto& [finished, is_repeated] : std::map<int64_t, bool>{{step - 1, true}, {step, false}}) {
    cluster.Gone(2);
    cluster.sent.clear();
    cluster.Register(2, "b", 1, {cluster.Task(job, finished)});
    EXPECT_EQ(CheckpointRequests(cluster), is_repeated ? 1 : 0) << finished;
  }
  cluster.CommitCheckpoint(job, step);
  cluster.Gone(2);
  cluster.sent.clear();
  cluster.Register(2, "b", 1, {cluster.Task(job, step)});
  EXPECT_EQ(CheckpointRequests(cluster), 0);
}

TEST(CheckpointRequests, ArePunctualAlthoughTheCoordinatorRestarts) {
  Cluster cluster;
  const std::string job = JobWithCheckpoints(&cluster);
  for (int restart = 0; restart < 2; ++restart) {
    cluster.RunFor(4000, {1, 2});
    cluster.Restart();
    cluster.Register(1, "a", 1, {cluster.Task(job, 10)});
    cluster.Register(2, "b", 1, {cluster.Task(job, 10)});
  }
  ASSERT_EQ(CheckpointRequests(cluster), 0);
  cluster.RunFor(2500, {1, 2});
  EXPECT_EQ(CheckpointRequests(cluster), 2) << "10 s have passed";
}

}  // namespace
}  // namespace xlad::service
