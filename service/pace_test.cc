// Workers that run at their own pace: how far one can be ahead of the others, and that workers that run together are
// never paused.
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

// Workers a and b on connections 1 and 2, which report every 500 ms. Only a is ever faster.
struct PacedCluster : Cluster {
  PacedCluster() : Cluster({}, /*lease_steps=*/1'000'000) {
    JobSpec spec = Spec(4);
    spec.set_steps(1'000'000'000);
    job = RunningJob(spec);
    NoteLeases();
  }
  // Each worker runs this many steps every 500 ms. After a shorter lease, worker a waits at its end, until a longer
  // lease arrives or no shorter one has arrived for 3 s.
  void Run(int64_t ms, int64_t steps_a, int64_t steps_b) {
    for (int64_t passed = 0; passed < ms; passed += 500) {
      const int64_t limit = clock.NowNs() < paused_until_ns && !a_ignores_pauses ? paused_at : INT64_MAX;
      a = std::max(a, std::min(a + steps_a, limit));
      b += steps_b;
      Beat(1, job, a);
      Beat(2, job, b);
      Advance(500);
      NoteLeases();
    }
  }
  // Reads the leases that were sent. A lease that is shorter than an earlier one is a pause.
  void NoteLeases() {
    for (const auto& [connection, message, common] : sent) {
      const int64_t lease =
          message.has_start() ? message.start().lease_until_step() : message.renew().lease_until_step();
      if (lease <= 0) continue;
      const bool is_pause = lease < longest[connection];
      longest[connection] = std::max(longest[connection], lease);
      if (!is_pause && connection == ConnectionId(1)) paused_until_ns = 0;
      if (!is_pause) continue;
      ++pauses;
      EXPECT_EQ(connection, ConnectionId(1)) << "b is never ahead";
      paused_at = lease;
      paused_until_ns = clock.NowNs() + 3000 * kNsPerMs;
    }
    sent.clear();
  }

  std::string job;
  int64_t a = 0, b = 0;
  bool a_ignores_pauses = false;            // As workers of older versions do.
  std::map<ConnectionId, int64_t> longest;  // The longest lease.
  int64_t pauses = 0, paused_at = 0, paused_until_ns = 0;
};

// Worker a runs 100 times as many steps as b and has been paused.
struct PausedCluster : PacedCluster {
  PausedCluster() {
    Run(20'000, 1000, 10);
    EXPECT_GT(pauses, 0);
  }
};

TEST(Pace, AFastWorkerStaysWithinSecondsOfASlowOne) {
  PacedCluster cluster;
  cluster.Run(10'000, 1000, 10);
  EXPECT_LT(cluster.a - cluster.b, 10'000) << "paused after a few seconds";
  for (int i = 0; i < 100; ++i) cluster.Run(10'000, 1000, 10);
  EXPECT_GT(cluster.a, cluster.b);
  for (int i = 0; i < 100; ++i) {
    cluster.Run(500, 1000, 10);
    ASSERT_LE(cluster.a - cluster.b, 100) << "as many steps as the slow worker runs in 5 s";
  }
}

// A stop is at a step that the fastest worker has not begun.
TEST(Pace, AStopIsCloseToTheSlowestWorker) {
  PacedCluster cluster;
  cluster.Run(100'000, 1000, 100);
  EXPECT_LE(cluster.a - cluster.b, 1000) << "the slow worker runs 5 s";
  WorkerMessage steps, draining;
  cluster.Name(cluster.job, steps.mutable_steps());
  StepMetrics* last = steps.mutable_steps()->add_metrics();
  last->set_step(cluster.a - 1);
  last->set_step_ms(0.5);  // A step of the fast worker, which waits between its steps.
  cluster.Handle(1, steps);
  draining.mutable_draining();
  cluster.Handle(1, draining);
  ASSERT_TRUE(cluster.sent.back().message.has_stop_at());
  EXPECT_LT(cluster.sent.back().message.stop_at().step() - cluster.b, 1500);
}

// Worker a ignores pauses, so a checkpoint that is requested a few steps after its last report would come too late, and
// so would all that follow.
TEST(Pace, TheNextCommonStepIsFarIfAWorkerDoesNotWait) {
  PacedCluster cluster;
  cluster.a_ignores_pauses = true;
  cluster.Run(20'000, 1000, 10);
  ASSERT_GT(cluster.pauses, 0);
  WorkerMessage steps, draining;
  cluster.Name(cluster.job, steps.mutable_steps());
  StepMetrics* last = steps.mutable_steps()->add_metrics();
  last->set_step(cluster.a - 1);
  last->set_step_ms(0.5);
  cluster.Handle(1, steps);
  draining.mutable_draining();
  cluster.Handle(1, draining);
  ASSERT_TRUE(cluster.sent.back().message.has_stop_at());
  EXPECT_GE(cluster.sent.back().message.stop_at().step() - cluster.a, 1000) << "what a runs in 500 ms";
}

TEST(Pace, WhenTheSlowWorkerBecomesFastTheOtherOneIsNotHeldBack) {
  PausedCluster cluster;
  const int64_t before = cluster.a;
  cluster.Run(30'000, 1000, 1000);
  EXPECT_GT(cluster.a - before, 50'000) << "of 60,000 steps without any pause";
}

TEST(Pace, APauseEndsAsSoonAsItIsNotNeeded) {
  PausedCluster cluster;
  ASSERT_GT(cluster.paused_until_ns, cluster.clock.NowNs());
  cluster.b = cluster.a;
  cluster.Run(500, 0, 0);
  EXPECT_EQ(cluster.paused_until_ns, 0);
}

// A worker that is slow because its machine is busy reports late, too.
TEST(Pace, ASilentWorkerDoesNotEndThePauseOfAnother) {
  PausedCluster cluster;
  for (int64_t ms = 0; ms < 2500; ms += 500) {
    cluster.Beat(1, cluster.job, cluster.a);
    cluster.Advance(500);
    cluster.NoteLeases();
  }
  EXPECT_GT(cluster.paused_until_ns, 0);
}

TEST(Pace, WorkersThatRunTogetherAreNotPaused) {
  PacedCluster cluster;
  cluster.Run(10'000, 1000, 1000);
  cluster.a += 900;  // The report of one worker always comes later.
  cluster.Run(10'000, 1000, 1000);
  cluster.Run(20'000, 0, 0);  // For example, both wait for a checkpoint.
  cluster.Run(10'000, 1000, 1000);
  cluster.a = cluster.b;
  for (int i = 0; i < 20; ++i) {  // Steps that take 3 s.
    cluster.Run(2500, 0, 0);
    cluster.Run(500, 1, 1);
  }
  EXPECT_EQ(cluster.pauses, 0);
}

// The worker trains, but its link to the coordinator is cut. It may not have fallen behind.
TEST(Pace, NoWorkerIsPausedWhileAnotherOneIsSilent) {
  PacedCluster cluster;
  cluster.Run(10'000, 1000, 1000);
  for (int64_t ms = 0; ms < 8000; ms += 500) {
    cluster.Beat(1, cluster.job, cluster.a += 1000);
    cluster.Advance(500);
  }
  cluster.Beat(2, cluster.job, cluster.b);  // This report was sent before the cut.
  cluster.Advance(500);
  cluster.NoteLeases();
  cluster.b = cluster.a;
  cluster.Run(10'000, 1000, 1000);
  EXPECT_EQ(cluster.pauses, 0);
}

TEST(Pace, AfterARestartTheSpeedIsMeasuredAgain) {
  PausedCluster cluster;
  const std::vector<RunningTask> on_a = {cluster.Task(cluster.job, cluster.a)};
  const std::vector<RunningTask> on_b = {cluster.Task(cluster.job, cluster.b)};
  cluster.Restart();
  cluster.Register(1, "a", 1, on_a);
  cluster.Register(2, "b", 1, on_b);
  cluster.NoteLeases();
  cluster.pauses = 0;
  cluster.Run(20'000, 1000, 10);
  EXPECT_GT(cluster.pauses, 0);
}

}  // namespace
}  // namespace xlad::service
