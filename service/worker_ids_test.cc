// A worker id belongs to the user whose token registered it. The worker of a refused token is lost like any other.
// Users do not learn of the jobs of others.
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;

// Registers a worker of `user`. Returns why the coordinator refused it, or "".
std::string RegisterAs(Cluster* cluster, const std::string& user, int64_t connection, const std::string& id,
                       uint64_t incarnation) {
  cluster->user = user;
  cluster->sent.clear();
  cluster->Register(connection, id, incarnation);
  for (const SendMessage& sent : cluster->sent) {
    if (sent.connection == ConnectionId(connection)) return sent.message.registered().refused();
  }
  return "no answer";
}

constexpr char kRefusal[] = "worker a belongs to a different user than the token of this worker (mallory)";

TEST(WorkerIds, AnotherUserNeverGetsTheId) {
  Cluster cluster;
  EXPECT_EQ(RegisterAs(&cluster, "wendy", 1, "a", 1), "");
  for (const uint64_t incarnation : {uint64_t{1}, uint64_t{2}}) {  // A peer of a job knows the incarnation.
    EXPECT_THAT(RegisterAs(&cluster, "mallory", 2, "a", incarnation), HasSubstr(kRefusal)) << "alive";
  }
  cluster.Advance(CoordinatorOptions().suspect_ms + 500);
  ASSERT_EQ(cluster.coordinator().workers().List().workers(0).state(), "suspect");
  EXPECT_THAT(RegisterAs(&cluster, "mallory", 3, "a", 1), HasSubstr(kRefusal)) << "silent";
  EXPECT_THAT(RegisterAs(&cluster, "mallory", 3, "a", 3), HasSubstr(kRefusal)) << "silent";
  cluster.Gone(1);
  EXPECT_THAT(RegisterAs(&cluster, "mallory", 4, "a", 1), HasSubstr(kRefusal)) << "not connected";
  cluster.Advance(CoordinatorOptions().lost_ms);
  ASSERT_EQ(cluster.coordinator().workers().List().workers(0).state(), "lost");
  EXPECT_THAT(RegisterAs(&cluster, "mallory", 5, "a", 5), HasSubstr(kRefusal)) << "lost";
  EXPECT_THAT(RegisterAs(&cluster, "mallory", 5, "a", 5),
              ::testing::ContainsRegex("that worker is lost, so the id is free in (59[0-9]|60[01]) s"));
  EXPECT_EQ(RegisterAs(&cluster, "mallory", 6, "b", 6), "") << "another id";
  EXPECT_EQ(RegisterAs(&cluster, "wendy", 7, "a", 7), "");
  EXPECT_EQ(cluster.coordinator().workers().List().workers(0).state(), "alive");
}

TEST(WorkerIds, TheRefusalSaysWhenTheIdIsFree) {
  Cluster cluster;
  EXPECT_EQ(RegisterAs(&cluster, "wendy", 1, "a", 1), "");
  EXPECT_THAT(RegisterAs(&cluster, "mallory", 2, "a", 2),
              HasSubstr("the id is free when that worker has drained and ended (SIGTERM), or 600 s after it was lost"));
  cluster.Gone(1);
  cluster.Advance(CoordinatorOptions().lost_ms);
  cluster.Advance(CoordinatorOptions().keep_lost_workers_ms - 5000);
  const std::string refused = RegisterAs(&cluster, "mallory", 3, "a", 3);
  EXPECT_THAT(refused, ::testing::ContainsRegex("the id is free in [3-6] s"));
  cluster.Advance(6000);
  EXPECT_EQ(RegisterAs(&cluster, "mallory", 4, "a", 4), "");
}

// The worker was restarted on another node, while its old connection still seems to be open.
TEST(WorkerIds, TheSameUserTakesOverASilentWorker) {
  Cluster cluster;
  EXPECT_EQ(RegisterAs(&cluster, "wendy", 1, "a", 1), "");
  cluster.Advance(CoordinatorOptions().suspect_ms + 100);
  EXPECT_EQ(RegisterAs(&cluster, "wendy", 2, "a", 2), "");
  EXPECT_EQ(cluster.closed, std::vector<ConnectionId>{ConnectionId(1)});
}

// The registered workers are not in the log, but the workers of a running attempt are.
TEST(WorkerIds, AfterARestartOfTheCoordinatorTheAttemptsWorkerKeepsItsId) {
  Cluster cluster;
  cluster.user = "wendy";
  const std::string job = cluster.RunningJob();
  EXPECT_EQ(cluster.CountSent([](const auto& m) { return m.has_launch() && !m.launch().peers(0).user().empty(); }), 0)
      << "workers do not need the user";
  const RunningTask task = cluster.Task(job, 10);
  cluster.Restart();
  EXPECT_THAT(RegisterAs(&cluster, "mallory", 11, "a", 1),
              ::testing::AllOf(HasSubstr(kRefusal), HasSubstr("when the jobs that ran on that worker have ended")));
  cluster.user = "wendy";
  cluster.Register(12, "a", 1, {task});
  cluster.Register(13, "b", 1, {task});
  EXPECT_EQ(cluster.Status(job).state(), RUNNING);
  EXPECT_EQ(cluster.Status(job).attempt(), 1);
}

TEST(WorkerIds, AJobWhoseWorkerIsRefusedFollowsItsPolicy) {
  Cluster cluster;
  JobSpec spec = cluster.Spec(4);
  spec.set_on_loss(JobSpec::SHRINK);
  const std::string job = cluster.RunningJob(spec);
  cluster.Gone(1, "found token 0123456789ab, which was revoked");
  cluster.RunFor(CoordinatorOptions().lost_ms + 200, {2});
  EXPECT_EQ(cluster.Status(job).state(), PENDING);
  const std::string lost =
      "it was refused: found token 0123456789ab, which was revoked; it has not been connected for 10000 ms";
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr(lost));
  EXPECT_THAT(cluster.coordinator().workers().List().workers(0).reason(), HasSubstr(lost));
  cluster.RunFor(4000, {2});
  EXPECT_EQ(cluster.Status(job).state(), COMPILING);
  EXPECT_EQ(cluster.Status(job).mesh(0).size(), 2);
}

// Two jobs run on one worker, and more wait.
TEST(JobsOfOthers, AreNotNamed) {
  CoordinatorOptions options;
  options.share_workers = true;
  Cluster cluster(options);
  cluster.Register(1, "a");
  std::vector<std::string> jobs;
  for (const char* key : {"@alice/1", "@bob/1"}) {
    jobs.push_back(cluster.Submit(1, key));
    cluster.Built(key);
    cluster.Start(jobs.back(), {1});
  }
  const auto shown = [&](const std::string& key) {
    const auto shows = [&](const Job& job) { return job.client_key == key; };
    return cluster.coordinator().workers().List(shows).workers(0).job_id();
  };
  EXPECT_EQ(shown("@alice/1"), jobs[0]);
  EXPECT_EQ(shown("@bob/1"), jobs[1]);
  EXPECT_EQ(shown("@carol/1"), "");
  const std::string first = cluster.Submit(2, "@alice/2");
  cluster.Built("more");
  const std::string bobs = cluster.Submit(1, "@bob/2"), alices = cluster.Submit(1, "@alice/3");
  EXPECT_EQ(cluster.Status(bobs).reason(), "waits behind a pending job of another user");
  EXPECT_THAT(cluster.coordinator().Why(JobId(bobs))->text(), ::testing::Not(HasSubstr(first)));
  EXPECT_THAT(cluster.Status(alices).reason(), HasSubstr("waits behind job " + first));
}

}  // namespace
}  // namespace xlad::service
