// How soon jobs continue without workers that have ended but do not count as lost yet, and what is recorded about
// workers that are silent.
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> WorkersOf(const Job& job) {
  std::vector<std::string> ids;
  for (const Peer& peer : job.placed.peers()) ids.push_back(peer.worker_id());
  return ids;
}

// A job on the workers a and b. The spare workers c and d are on connections 3 and 4.
std::string RunningJobWithSpares(Cluster* cluster) {
  const std::string job = cluster->RunningJob();
  cluster->Register(3, "c");
  cluster->Register(4, "d");
  return job;
}

// Workers a and c end at the same time. The coordinator first learns that a has ended, so it places the next attempt on
// c.
void EndTogether(Cluster* cluster, const std::string& job) {
  cluster->Gone(1);
  cluster->Fail(2, job, 5, absl::UnavailableError("peer a is gone"), "a");
  ASSERT_THAT(WorkersOf(cluster->JobOf(job)), ::testing::ElementsAre("b", "c"));
  cluster->Gone(3);
}

TEST(DeadWorkers, AnAttemptThatCannotStartIsPlacedElsewhere) {
  Cluster cluster;
  const std::string job = RunningJobWithSpares(&cluster);
  EndTogether(&cluster, job);
  cluster.RunFor(900, {2, 4});
  EXPECT_EQ(cluster.Status(job).attempt(), 2) << "c may still reconnect";
  cluster.RunFor(200, {2, 4});
  EXPECT_EQ(cluster.Status(job).attempt(), 3);
  EXPECT_THAT(WorkersOf(cluster.JobOf(job)), ::testing::ElementsAre("b", "d"));
  EXPECT_EQ(cluster.Status(job).failures(), 1)
      << "the first attempt failed; the second one never started and does not count";
}

TEST(DeadWorkers, AWorkerThatReconnectsKeepsTheAttemptThatItStarts) {
  Cluster cluster;
  const std::string job = RunningJobWithSpares(&cluster);
  EndTogether(&cluster, job);
  cluster.RunFor(500, {2, 4});
  cluster.Register(5, "c");
  cluster.RunFor(5000, {2, 4, 5});
  EXPECT_EQ(cluster.Status(job).attempt(), 2);
  cluster.Start(job, {2, 5});
}

// A worker that has reported the attempt is given more time: if it had ended, its peers would report that. It probably
// loads its state while its connection to the coordinator is cut.
TEST(DeadWorkers, AWorkerThatHasTheAttemptIsWaitedForLonger) {
  Cluster cluster;
  const std::string job = RunningJobWithSpares(&cluster);
  cluster.Gone(1);
  cluster.Fail(2, job, 5, absl::UnavailableError("peer a is gone"), "a");
  cluster.Beat(3, job, 0);
  cluster.Gone(3);
  cluster.RunFor(2900, {2, 4});
  EXPECT_EQ(cluster.Status(job).attempt(), 2);
  cluster.RunFor(200, {2, 4});
  EXPECT_EQ(cluster.Status(job).attempt(), 3);
}

// With --on-loss shrink, the job continues on fewer devices if the lost worker cannot be replaced.
TEST(DeadWorkers, AJobShrinksIfItsAttemptsCannotStart) {
  Cluster cluster;
  JobSpec spec = cluster.Spec(4);
  spec.set_on_loss(JobSpec::SHRINK);
  const std::string job = cluster.RunningJob(spec);
  cluster.Register(3, "c");
  EndTogether(&cluster, job);
  cluster.RunFor(1100, {2});
  EXPECT_EQ(cluster.Status(job).state(), PENDING);
  EXPECT_THAT(cluster.Status(job).reason(),
              HasSubstr("worker c (ranks 2, 3; host host, pid 103) was lost before attempt 2 started"));
  cluster.RunFor(3000, {2});
  EXPECT_EQ(cluster.Status(job).state(), COMPILING);
  EXPECT_EQ(cluster.Status(job).mesh(0).size(), 2);
}

// A machine that loses power does not close its connections. Its peers notice the loss before the coordinator does.
TEST(DeadWorkers, AWorkerThatItsPeersHaveLostGetsNoAttemptUntilItSendsAMessage) {
  Cluster cluster;
  const std::string job = RunningJobWithSpares(&cluster);
  cluster.Do([](CoordinatorCore& c) { ASSERT_TRUE(c.Drain(WorkerId("d")).ok()); });
  cluster.Do([](CoordinatorCore& c) { ASSERT_TRUE(c.Drain(WorkerId("c")).ok()); });
  cluster.Fail(2, job, 5, absl::UnavailableError("peer a does not answer"), "a");
  cluster.RunFor(1100, {2, 3, 4});
  EXPECT_EQ(cluster.Status(job).state(), PENDING);
  EXPECT_THAT(cluster.Status(job).reason(),
              HasSubstr("worker a (ranks 0, 1; host host, pid 101) was lost at step 5: its peers "
                        "have lost their connections to it, and it is silent"));
  cluster.RunFor(100, {1, 2, 3, 4});
  EXPECT_EQ(cluster.Status(job).state(), STARTING) << "the coordinator has received a message from a";
  EXPECT_THAT(WorkersOf(cluster.JobOf(job)), ::testing::ElementsAre("a", "b"));
}

// If the coordinator's own link fails, all workers are silent at once.
TEST(DeadWorkers, OfAJobThatAreSilentTogetherHaveOneEvent) {
  Cluster cluster;
  for (int w = 3; w <= 40; ++w) cluster.Register(w, absl::StrCat("w", w));
  const std::string job = cluster.Submit(60);
  cluster.Built();
  const int64_t peers = cluster.JobOf(job).placed.peers_size();
  cluster.Advance(CoordinatorOptions().suspect_ms);
  std::vector<std::string> texts;
  for (const JobEvent& event : cluster.store.events) {
    if (event.has_worker_silent()) texts.push_back(event.worker_silent().reason());
  }
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_THAT(texts[0], ::testing::StartsWith("worker w"));
  EXPECT_THAT(texts[0], HasSubstr(absl::StrCat(
                            " and ", peers - 1, " other workers of the job are silent at step 0 (all at once: ",
                            "check the network of the coordinator): no heartbeat for 3000 ms; they are lost after ")));
  const ListWorkersResponse list = cluster.coordinator().workers().List();
  for (const auto& worker : list.workers()) EXPECT_EQ(worker.state(), "suspect");
}

}  // namespace
}  // namespace xlad::service
