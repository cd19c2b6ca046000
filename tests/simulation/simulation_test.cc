// Complete clusters on a virtual clock, with faults that a seed determines. XLAD_SIMULATION_SEEDS is the number of
// seeds (default 40). XLAD_SIMULATION_SEED is a single seed to replay.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/log.h"

#include "tests/simulation/simulated_cluster.h"

namespace xlad::simulation {
namespace {

constexpr int kWorkers = 5;
const bool kQuiet = (SetLogLevel(LogLevel::kError), true);

struct Submitted {
  std::string id, key;
  int64_t steps = 0;
};

// Injects a fault, or none, and runs the cluster for less than 3 s. Then starts the coordinator if it was killed, and
// with a probability of 1/2 each of the workers that do not run.
void InjectFault(SimulatedCluster* cluster, Random* random) {
  const int w = static_cast<int>(random->Below(kWorkers));
  switch (random->Below(7)) {
    case 0:
      if (cluster->coordinator_is_up()) cluster->KillCoordinator();
      break;
    case 1: cluster->KillWorker(w); break;
    case 2: cluster->CutConnection(w); break;
    case 3: cluster->DrainWorker(w); break;
    case 4: cluster->FailNextAppends(1 + static_cast<int>(random->Below(3))); break;
    default:
      break;  // This choice does not inject a fault.
  }
  cluster->Run(static_cast<int64_t>(random->Below(3000)));
  if (!cluster->coordinator_is_up()) cluster->StartCoordinator();
  for (int i = 0; i < kWorkers; ++i) {
    if (!cluster->worker_is_up(i) && random->Below(2) == 0) cluster->StartWorker(i);
  }
}

// Every step of a successful job is recorded exactly once, with its value.
void ExpectWholeMetrics(const SimulatedCluster& cluster, const Submitted& job) {
  std::vector<bool> seen(job.steps, false);
  for (const auto& [id, metrics] : cluster.store().metrics) {
    if (id.str() != job.id) continue;
    ASSERT_LT(metrics.step(), job.steps);
    EXPECT_FALSE(seen[metrics.step()]) << job.id << " step " << metrics.step();
    EXPECT_EQ(metrics.values(0), static_cast<float>(metrics.step()));
    seen[metrics.step()] = true;
  }
  for (size_t step = 0; step < seen.size(); ++step) EXPECT_TRUE(seen[step]) << job.id << " step " << step;
}

// No worker has running attempts of jobs of two owners.
void ExpectOwnersApart(SimulatedCluster* cluster) {
  if (cluster->coordinator() == nullptr) return;
  std::map<std::string, std::string> owners;  // By worker.
  for (const service::Job* job : cluster->coordinator()->context().jobs.Open()) {
    if (!job->attempt_running) continue;
    for (const Peer& peer : job->placed.peers()) {
      EXPECT_EQ(owners.emplace(peer.worker_id(), job->owner).first->second, job->owner) << peer.worker_id();
    }
  }
}

// In odd seeds, the jobs belong to three owners. Adds to `handovers` how often a task waited for another owner's
// process.
uint64_t RunSeed(uint64_t seed, int64_t* handovers = nullptr) {
  const auto random = SeededRandom(seed * 977 + 5);
  SimulatedCluster cluster(seed, kWorkers, 2);
  std::vector<Submitted> jobs;
  for (int round = 0; round < 12; ++round) {
    const std::string key = absl::StrCat(seed % 2 == 1 ? absl::StrCat("@user", round % 3, "/") : "", "job", round);
    const int64_t steps = random->Below(400);
    const std::string id = cluster.Submit(key, 1 + static_cast<int64_t>(random->Below(6)), steps, 1000);
    if (!id.empty()) jobs.push_back({id, key, steps});
    InjectFault(&cluster, random.get());
    ExpectOwnersApart(&cluster);
  }
  cluster.FailNextAppends(0);
  if (!cluster.coordinator_is_up()) cluster.StartCoordinator();
  for (int w = 0; w < kWorkers; ++w) {
    if (!cluster.worker_is_up(w)) cluster.StartWorker(w);
  }
  // When all processes run again, every accepted job ends within a bounded time.
  for (int round = 0; round < 20; ++round) {
    cluster.Run(15'000);
    for (int w = 0; w < kWorkers; ++w) {
      if (!cluster.worker_is_up(w)) cluster.StartWorker(w);  // Restarts a worker that was drained.
    }
  }
  // A failed append may have written its batch. The job then exists although it was not acknowledged.
  EXPECT_GE(cluster.coordinator()->context().jobs.size(), jobs.size());
  for (const Submitted& job : jobs) {
    const JobStatus status = cluster.StatusOf(job.id);
    EXPECT_EQ(status.id(), job.id) << "lost " << job.id;
    EXPECT_EQ(JobState_Name(status.state()), "SUCCEEDED") << job.id << ": " << status.reason();
    ExpectWholeMetrics(cluster, job);
  }
  EXPECT_EQ(cluster.overlaps(), 0);
  if (handovers != nullptr) *handovers += cluster.handovers();
  return cluster.trace_hash();
}

TEST(Simulation, AcceptedJobsSurviveEverything) {
  const char* one = std::getenv("XLAD_SIMULATION_SEED");
  const char* many = std::getenv("XLAD_SIMULATION_SEEDS");
  const uint64_t first = one == nullptr ? 0 : std::strtoull(one, nullptr, 10);
  const uint64_t count = one != nullptr ? 1 : many == nullptr ? 40 : std::strtoull(many, nullptr, 10);
  int64_t handovers = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(absl::StrCat("replay with XLAD_SIMULATION_SEED=", seed));
    RunSeed(seed, &handovers);
    if (testing::Test::HasFailure()) return;
  }
  if (count >= 10) EXPECT_GT(handovers, static_cast<int64_t>(count) / 4);
}

// Under any faults, a session ends after its client has disconnected, and jobs then get its devices.
TEST(Simulation, SessionsLeaveNothingBehind) {
  for (uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const auto random = SeededRandom(seed * 31 + 7);
    SimulatedCluster cluster(seed, kWorkers, 2);
    std::vector<std::string> sessions;
    int used = 0;
    for (int round = 0; round < 15; ++round) {
      const std::string id =
          cluster.OpenSession(absl::StrCat("session", round), 1 + static_cast<int64_t>(random->Below(6)));
      if (!id.empty()) sessions.push_back(id);
      InjectFault(&cluster, random.get());
      for (const std::string& session : sessions) used += cluster.UseSession(session);
    }
    cluster.FailNextAppends(0);
    if (!cluster.coordinator_is_up()) cluster.StartCoordinator();
    cluster.ReleaseSessions();
    for (int second = 0; second < 60; ++second) {
      cluster.Run(1000);
      for (int w = 0; w < kWorkers; ++w) {
        if (!cluster.worker_is_up(w)) cluster.StartWorker(w);
      }
    }
    EXPECT_GT(used, 0);
    for (const std::string& id : sessions) {
      EXPECT_TRUE(absl::IsAborted(cluster.coordinator()->sessions().Check(service::JobId(id)))) << id;
    }
    const std::string job = cluster.Submit("after", 2 * kWorkers, 20, 1);
    cluster.Run(10'000);
    EXPECT_EQ(JobState_Name(cluster.StatusOf(job).state()), "SUCCEEDED");
  }
}

// A session survives a connection that breaks and is restored.
TEST(Simulation, SessionsOutliveBrokenConnections) {
  SimulatedCluster cluster(9, 3, 2);
  cluster.Run(2000);
  const std::string id = cluster.OpenSession("session", 6);
  cluster.Run(2000);
  const auto random = SeededRandom(9);
  for (int round = 0; round < 40; ++round) {
    ASSERT_TRUE(cluster.UseSession(id)) << round;
    if (random->Below(3) == 0) cluster.CutConnection(static_cast<int>(random->Below(3)));
    cluster.Run(static_cast<int64_t>(random->Below(300)));
    if (round % 8 == 7) cluster.Run(2000);
  }
  cluster.Run(5000);
  EXPECT_EQ(JobState_Name(cluster.StatusOf(id).state()), "RUNNING");
}

TEST(Simulation, ASeedReplaysExactly) { EXPECT_EQ(RunSeed(7), RunSeed(7)); }

TEST(Simulation, AThousandWorkersRunAJob) {
  SimulatedCluster cluster(3, 1000, 8);
  cluster.Run(2000);
  const std::string job = cluster.Submit("large", 8000, 50, 1);
  ASSERT_FALSE(job.empty());
  cluster.Run(10'000);
  EXPECT_EQ(cluster.StatusOf(job).state(), SUCCEEDED);
}

}  // namespace
}  // namespace xlad::simulation
