// Jobs of different owners do not share a worker, unless the coordinator allows it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "base/log.h"
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class JobsOfOwners : public ::testing::Test {
 protected:
  JobsOfOwners() { SetLogLevel(LogLevel::kError); }
  ~JobsOfOwners() override { SetLogLevel(LogLevel::kInfo); }
};

CoordinatorOptions Sharing(bool share) {
  CoordinatorOptions options;
  options.share_workers = share;
  return options;
}

// Completes all builds. The build of a job that waits behind another one begins later.
void BuildAll(Cluster* cluster) {
  while (!cluster->builds.empty()) {
    const StartBuild build = cluster->builds.front();
    cluster->builds.erase(cluster->builds.begin());
    const std::string digest = absl::StrCat("digest ", DeviceName(build.targets[0]));
    const BuiltProgram built{digest, 12, {}, false, {build.targets[0], {}}, {}, {}, false, "compiler"};
    cluster->Do([&](CoordinatorCore& c) { c.OnBuilt(build.job, build.mesh, built); });
  }
}

std::string SubmitFor(const std::string& owner, int number, int64_t devices, Cluster* cluster) {
  const std::string prefix = owner.empty() ? "" : absl::StrCat("@", owner, "/");
  const std::string job = cluster->Submit(devices, absl::StrCat(prefix, number));
  BuildAll(cluster);
  return job;
}

std::string PlacedOn(const std::string& job, Cluster* cluster) {
  std::string text;
  if (!cluster->JobOf(job).attempt_running) return text;
  for (const Peer& peer : cluster->JobOf(job).placed.peers()) {
    absl::StrAppend(&text, peer.worker_id(), ":", peer.devices_size(), " ");
  }
  return text;
}

void CancelOne(const std::string& job, Cluster* cluster) {
  cluster->Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Cancel(JobId(job)).ok()); });
}

TEST_F(JobsOfOwners, WaitUntilAWorkerIsFreeOfOthers) {
  Cluster cluster;
  cluster.Register(1, "a");
  cluster.Register(2, "b");
  const std::string alice = SubmitFor("alice", 1, 1, &cluster);
  const std::string bob = SubmitFor("bob", 1, 2, &cluster);
  EXPECT_EQ(PlacedOn(alice, &cluster), "a:1 ");
  EXPECT_EQ(PlacedOn(bob, &cluster), "b:2 ");
  const std::string waiting = SubmitFor("bob", 2, 1, &cluster);
  EXPECT_EQ(PlacedOn(waiting, &cluster), "");
  EXPECT_EQ(cluster.Status(waiting).reason(),
            "waits for 1 device, 1 is free of 4, 1 of them on workers that run jobs of another user");
  const WhyJobResponse why = cluster.coordinator().Why(JobId(waiting)).value();
  EXPECT_THAT(why.text(), AllOf(HasSubstr("1 of them on workers that run jobs of another user"),
                                HasSubstr("--share-workers"), Not(HasSubstr("alice"))));
  CancelOne(alice, &cluster);
  EXPECT_EQ(PlacedOn(waiting, &cluster), "a:1 ");
  EXPECT_THAT(cluster.coordinator().Why(JobId(waiting))->text(), Not(HasSubstr("--share-workers")));
}

TEST_F(JobsOfOwners, ShareAWorkerIfTheOperatorAllowsIt) {
  Cluster cluster(Sharing(true));
  cluster.Register(1, "a");
  const std::string alice = SubmitFor("alice", 1, 1, &cluster);
  const std::string bob = SubmitFor("bob", 1, 1, &cluster);
  EXPECT_EQ(PlacedOn(alice, &cluster), "a:1 ");
  EXPECT_EQ(PlacedOn(bob, &cluster), "a:1 ");
}

TEST_F(JobsOfOwners, AreApartFromSessionsAndAfterARestart) {
  Cluster cluster;
  cluster.Register(1, "a");
  const std::string alice = SubmitFor("alice", 1, 1, &cluster);
  cluster.Start(alice, {1});
  const RunningTask task = cluster.Task(alice, 0);
  cluster.Restart();
  cluster.Register(1, "a", 1, {task});
  ASSERT_EQ(PlacedOn(alice, &cluster), "a:1 ");
  OpenSessionRequest open;
  open.set_client_key("@bob/s");
  open.add_mesh()->set_size(1);
  std::string session;
  cluster.Do([&](CoordinatorCore& c) { session = c.OpenSession(open)->job_id(); });
  EXPECT_EQ(PlacedOn(session, &cluster), "");
  EXPECT_THAT(cluster.Status(session).reason(), HasSubstr("on workers that run jobs of another user"));
  CancelOne(alice, &cluster);
  EXPECT_EQ(PlacedOn(session, &cluster), "a:1 ");
}

TEST_F(JobsOfOwners, OfOneOwnerArePackedAndLeaveWorkersToOthers) {
  Cluster cluster;
  for (int w = 1; w <= 3; ++w) cluster.Register(w, absl::StrCat("w", w));
  for (int job = 1; job <= 2; ++job) EXPECT_EQ(PlacedOn(SubmitFor("alice", job, 1, &cluster), &cluster), "w1:1 ");
  EXPECT_EQ(PlacedOn(SubmitFor("bob", 1, 4, &cluster), &cluster), "w2:2 w3:2 ");
  // A coordinator that does not know users, as on loopback, uses all workers.
  Cluster other;
  for (int w = 1; w <= 2; ++w) other.Register(w, absl::StrCat("w", w));
  EXPECT_EQ(PlacedOn(SubmitFor("", 1, 1, &other), &other), "w1:1 ");
  EXPECT_EQ(PlacedOn(SubmitFor("", 2, 1, &other), &other), "w2:1 ");
}

TEST_F(JobsOfOwners, StartBehindAJobThatWaitsForOthersExceptOnItsReservedWorkers) {
  Cluster cluster;
  for (int w = 1; w <= 3; ++w) cluster.Register(w, absl::StrCat("w", w));
  const std::string alice = SubmitFor("alice", 1, 1, &cluster);  // On w1.
  SubmitFor("carol", 1, 1, &cluster);                            // On w2.
  const std::string bob = SubmitFor("bob", 1, 4, &cluster);      // Reserves w3, which is idle, and w1.
  EXPECT_EQ(cluster.Status(bob).reason(),
            "waits for 4 devices, 4 are free of 6, 2 of them on workers that run jobs of another user");
  const std::string reserved = SubmitFor("alice", 2, 1, &cluster);
  EXPECT_EQ(cluster.Status(reserved).reason(),
            "waits for 1 device, 4 are free of 6, 1 of them on workers that run jobs of another user, 3 of them on "
            "workers that are reserved for an older job");
  const std::string behind = SubmitFor("bob", 2, 1, &cluster);
  EXPECT_THAT(cluster.Status(behind).reason(), HasSubstr("waits behind job " + bob));
  EXPECT_THAT(cluster.Status(SubmitFor("dave", 1, 1, &cluster)).reason(), HasSubstr("reserved for an older job"));
  EXPECT_EQ(PlacedOn(SubmitFor("carol", 2, 1, &cluster), &cluster), "w2:1 ");
  const auto why = [&](const std::string& job) { return cluster.coordinator().Why(JobId(job))->text(); };
  EXPECT_THAT(why(bob), HasSubstr("; workers w1, w3 are reserved for it until it starts."));
  EXPECT_THAT(why(behind), HasSubstr("; workers w1, w3 are reserved for job " + bob));
  EXPECT_THAT(why(reserved), AllOf(HasSubstr("; workers w1, w3 are reserved for an older job"), Not(HasSubstr(bob))));
  cluster.Advance(1000);
  EXPECT_EQ(PlacedOn(reserved, &cluster), "");
  CancelOne(alice, &cluster);
  EXPECT_EQ(PlacedOn(bob, &cluster), "w1:2 w3:2 ");
  EXPECT_THAT(why(reserved), Not(HasSubstr("reserved for an older job")));
}

TEST_F(JobsOfOwners, AreToldOfReservationsOnlyIfTheyCouldUseTheWorkers) {
  Cluster cluster;
  for (int w = 1; w <= 4; ++w) cluster.Register(w, absl::StrCat("w", w), 1, {}, {w <= 2 ? "cpu" : "opaque"});
  const auto submit = [&](const std::string& owner, int64_t devices, const std::string& kind) {
    const std::string job = cluster.Submit(devices, absl::StrCat("@", owner, "/1"), 0, kind);
    BuildAll(&cluster);
    return job;
  };
  const std::string alice = submit("alice", 1, "cpu"), carol = submit("carol", 2, "opaque");
  EXPECT_EQ(PlacedOn(alice, &cluster), "w1:1 ");
  EXPECT_EQ(PlacedOn(carol, &cluster), "w3:2 ");
  const std::string bob = submit("bob", 4, "cpu"), dave = submit("dave", 1, "cpu"), erin = submit("erin", 4, "opaque");
  const auto why = [&](const std::string& job) { return cluster.coordinator().Why(JobId(job))->text(); };
  EXPECT_THAT(why(bob), HasSubstr("; workers w1, w2 are reserved for it until it starts."));
  EXPECT_THAT(why(dave), HasSubstr("; workers w1, w2 are reserved for an older job"));
  EXPECT_THAT(why(erin), AllOf(HasSubstr("waits for 4 devices, 2 are free of 4"), Not(HasSubstr("reserved"))));
}

// A job waits for its own worker, which is lost. Other workers are reserved for an older job.
TEST_F(JobsOfOwners, ThatWaitForALostWorkerAreNotToldOfReservations) {
  Cluster cluster;
  for (int w = 1; w <= 5; ++w) cluster.Register(w, absl::StrCat("w", w));
  cluster.Start(SubmitFor("alice", 1, 1, &cluster), {1});
  cluster.Start(SubmitFor("carol", 1, 1, &cluster), {2});
  cluster.Start(SubmitFor("dave", 1, 1, &cluster), {3});
  const std::string bob = SubmitFor("bob", 1, 6, &cluster);
  JobSpec spec = cluster.Spec(1);
  spec.set_on_loss(JobSpec::WAIT);
  const std::string waiting = cluster.Submit(spec, "@carol/2");
  BuildAll(&cluster);
  ASSERT_EQ(PlacedOn(waiting, &cluster), "w2:1 ");
  cluster.Start(waiting, {2});
  cluster.Gone(2);
  cluster.RunFor(CoordinatorOptions().lost_ms + 500, {1, 3, 4, 5});
  const auto why = [&](const std::string& job) { return cluster.coordinator().Why(JobId(job))->text(); };
  EXPECT_THAT(why(bob), HasSubstr("are reserved for it until it starts."));
  EXPECT_THAT(why(waiting), AllOf(HasSubstr("waits for worker w2 (--on-loss wait)"), Not(HasSubstr("reserved"))));
}

TEST_F(JobsOfOwners, AWorkerThatIsLostIsReplacedInTheReservation) {
  Cluster cluster;
  for (int w = 1; w <= 4; ++w) cluster.Register(w, absl::StrCat("w", w));
  const std::string alice = SubmitFor("alice", 1, 3, &cluster);  // On w1 and w2.
  SubmitFor("carol", 1, 1, &cluster);                            // On w3.
  const std::string bob = SubmitFor("bob", 1, 4, &cluster);      // Reserves w4 and w2.
  ASSERT_EQ(PlacedOn(bob, &cluster), "");
  EXPECT_EQ(PlacedOn(SubmitFor("carol", 2, 1, &cluster), &cluster), "w3:1 ");
  cluster.Do([](CoordinatorCore& c) { ASSERT_TRUE(c.Drain(WorkerId("w4")).ok()); });
  CancelOne(alice, &cluster);
  EXPECT_EQ(PlacedOn(bob, &cluster), "w1:2 w2:2 ");
}

TEST_F(JobsOfOwners, AWorkerThatBecomesIdleReplacesOneInUseInTheReservation) {
  Cluster cluster;
  for (int w = 1; w <= 5; ++w) cluster.Register(w, absl::StrCat("w", w));
  SubmitFor("alice", 1, 1, &cluster);                          // On w1.
  SubmitFor("carol", 1, 1, &cluster);                          // On w2.
  const std::string dave = SubmitFor("dave", 1, 1, &cluster);  // On w3.
  const std::string erin = SubmitFor("erin", 1, 1, &cluster);  // On w4.
  const std::string bob = SubmitFor("bob", 1, 6, &cluster);    // Reserves w5, which is idle, w1 and w2.
  const std::string behind = SubmitFor("carol", 2, 1, &cluster);
  EXPECT_EQ(PlacedOn(behind, &cluster), "");
  CancelOne(dave, &cluster);  // w3 replaces w2.
  EXPECT_EQ(PlacedOn(behind, &cluster), "w2:1 ");
  EXPECT_EQ(PlacedOn(SubmitFor("frank", 1, 1, &cluster), &cluster), "");
  EXPECT_EQ(PlacedOn(bob, &cluster), "");
  CancelOne(erin, &cluster);  // w4 replaces w1.
  EXPECT_EQ(PlacedOn(bob, &cluster), "w3:2 w4:2 w5:2 ") << "the jobs on w1 and w2 have not ended";
}

TEST_F(JobsOfOwners, KeepTheirReservationAlthoughOtherWorkersHaveAsFewJobs) {
  Cluster cluster;
  for (int w = 1; w <= 3; ++w) cluster.Register(w, absl::StrCat("w", w));
  const std::string alice = SubmitFor("alice", 1, 1, &cluster);
  ASSERT_EQ(PlacedOn(SubmitFor("alice", 2, 1, &cluster), &cluster), "w1:1 ");
  const std::string carol = SubmitFor("carol", 1, 1, &cluster);
  ASSERT_EQ(PlacedOn(carol, &cluster), "w2:1 ");
  const std::string bob = SubmitFor("bob", 1, 4, &cluster);  // Reserves w3, which is idle, and w2.
  CancelOne(alice, &cluster);
  BuildAll(&cluster);
  EXPECT_EQ(PlacedOn(SubmitFor("carol", 2, 1, &cluster), &cluster), "");
  EXPECT_EQ(PlacedOn(SubmitFor("alice", 3, 1, &cluster), &cluster), "w1:1 ");
  CancelOne(carol, &cluster);
  EXPECT_EQ(PlacedOn(bob, &cluster), "w2:2 w3:2 ");
}

TEST_F(JobsOfOwners, AreToldOfShareWorkersOnlyIfItWouldHelp) {
  Cluster cluster;
  cluster.Register(1, "a");
  cluster.Register(2, "b");
  const std::string alice = SubmitFor("alice", 1, 1, &cluster);
  const auto why = [&](const std::string& job) { return cluster.coordinator().Why(JobId(job))->text(); };
  const std::string large = SubmitFor("bob", 1, 4, &cluster);
  EXPECT_THAT(why(large), AllOf(HasSubstr("3 are free of 4, 1 of them on workers that run jobs of another user"),
                                Not(HasSubstr("--share-workers"))));
  const std::string behind = SubmitFor("bob", 2, 1, &cluster);
  EXPECT_THAT(why(behind), AllOf(HasSubstr("waits behind job " + large), Not(HasSubstr("--share-workers"))));
  const std::string reserved = SubmitFor("carol", 1, 1, &cluster);
  EXPECT_THAT(why(reserved), AllOf(HasSubstr("a pending job of another user"), Not(HasSubstr("--share-workers"))));
  CancelOne(large, &cluster);
  BuildAll(&cluster);
  EXPECT_EQ(PlacedOn(behind, &cluster), "b:1 ");
  EXPECT_THAT(why(reserved), AllOf(HasSubstr("2 of them on workers that run jobs of another user"),
                                   HasSubstr("--share-workers")));
}

TEST_F(JobsOfOwners, ThatWaitForTheirWorkersSayWhenTheseAreBackAndInUse) {
  Cluster cluster;
  cluster.Register(1, "a");
  cluster.Register(2, "b");
  JobSpec spec = cluster.Spec(4);
  spec.set_on_loss(JobSpec::WAIT);
  const std::string alice = cluster.Submit(spec, "@alice/1");
  BuildAll(&cluster);
  cluster.Start(alice, {1, 2});
  cluster.Gone(1);
  cluster.RunFor(CoordinatorOptions().lost_ms + 500, {2});
  EXPECT_THAT(cluster.Status(alice).reason(), HasSubstr("waits for worker a (--on-loss wait)"));
  const std::string bob = SubmitFor("bob", 1, 1, &cluster);
  EXPECT_EQ(PlacedOn(bob, &cluster), "b:1 ");
  cluster.Register(3, "a", /*incarnation=*/2);
  EXPECT_THAT(cluster.Status(alice).reason(),
              HasSubstr("waits for 4 devices of its workers (--on-loss wait), which are back: 3 are free of 4, 1 of "
                        "them on workers that run or are reserved for jobs of another user"));
  EXPECT_EQ(PlacedOn(SubmitFor("bob", 2, 1, &cluster), &cluster), "") << "the workers are reserved";
  EXPECT_EQ(PlacedOn(SubmitFor("carol", 1, 1, &cluster), &cluster), "");
  CancelOne(bob, &cluster);
  EXPECT_EQ(PlacedOn(alice, &cluster), "a:2 b:2 ");
}

// Every step submits a job, and every job ends kSteps after its start. The oldest job that waits therefore starts
// within kSteps after it has become the oldest one, although later jobs start before it.
TEST_F(JobsOfOwners, NeverWaitForLongBehindLaterJobs) {
  constexpr int kSteps = 6;
  int64_t overtakes = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random(seed);
    Cluster cluster;
    for (int w = 1; w <= 4; ++w) cluster.Register(w, absl::StrCat("w", w));
    std::vector<std::string> waiting;    // Oldest first.
    std::map<std::string, int> ends_at;  // By running job.
    int oldest_since = 0;
    for (int step = 0; step < 80; ++step) {
      const char* const owner = std::array{"alice", "bob", "carol"}[random() % 3];
      waiting.push_back(SubmitFor(owner, step, random() % 4 == 0 ? 6 : 1, &cluster));
      for (auto job = ends_at.begin(); job != ends_at.end();) {
        if (job->second > step) {
          ++job;
          continue;
        }
        CancelOne(job->first, &cluster);
        job = ends_at.erase(job);
      }
      BuildAll(&cluster);
      const std::string oldest = waiting[0];
      const auto has_started = [&](const std::string& job) { return cluster.JobOf(job).attempt_running; };
      for (const std::string& job : waiting) {
        if (!has_started(job)) continue;
        ends_at[job] = step + kSteps;
        overtakes += job != oldest && !has_started(oldest) ? 1 : 0;
      }
      std::erase_if(waiting, has_started);
      if (waiting.empty() || waiting[0] != oldest) oldest_since = step;
      ASSERT_LE(step - oldest_since, kSteps + 1) << "seed " << seed;
    }
  }
  EXPECT_GT(overtakes, 10);
}

// Submits and cancels random jobs of `owners` on four workers. Returns the placements after each step.
std::string RandomPlacements(uint64_t seed, bool share, const std::vector<std::string>& owners, int* waits) {
  std::mt19937_64 random(seed);
  Cluster cluster(Sharing(share));
  for (int w = 1; w <= 4; ++w) cluster.Register(w, absl::StrCat("w", w));
  std::vector<std::string> open;
  std::string text;
  for (int step = 0; step < 60; ++step) {
    if (open.empty() || random() % 5 < 3) {
      const std::string& owner = owners[random() % owners.size()];
      open.push_back(SubmitFor(owner, step, 1 + static_cast<int64_t>(random() % 3), &cluster));
    } else {
      const size_t at = random() % open.size();
      CancelOne(open[at], &cluster);
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
      BuildAll(&cluster);
    }
    std::map<std::string, std::set<std::string>> users;  // By worker.
    for (const std::string& job : open) {
      absl::StrAppend(&text, PlacedOn(job, &cluster), ";");
      const Job& placed = cluster.JobOf(job);
      if (!placed.attempt_running) *waits += absl::StrContains(placed.reason, "another user") ? 1 : 0;
      if (!placed.attempt_running) continue;
      for (const Peer& peer : placed.placed.peers()) users[peer.worker_id()].insert(placed.owner);
    }
    for (const auto& [worker, of] : users) {
      if (!share) EXPECT_EQ(of.size(), 1u) << worker << " in step " << step << " of seed " << seed;
    }
  }
  for (const std::string& job : open) CancelOne(job, &cluster);
  EXPECT_TRUE(cluster.coordinator().context().owners.empty());
  return text;
}

// No worker ever has jobs of two owners. If users are not known, the placements are the same as with --share-workers.
TEST_F(JobsOfOwners, NeverShareAWorkerAndOneOwnerDoesNotWait) {
  int waits = 0, other_waits = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    RandomPlacements(seed, false, {"alice", "bob", ""}, &waits);
    EXPECT_EQ(RandomPlacements(seed, false, {""}, &other_waits), RandomPlacements(seed, true, {""}, &other_waits));
    RandomPlacements(seed, false, {"alice"}, &other_waits);
  }
  EXPECT_GT(waits, 100);
  EXPECT_EQ(other_waits, 0);
}

}  // namespace
}  // namespace xlad::service
