// The link between two workers is cut while both of them reach the coordinator.
#include "service/placement/apart.h"
#include "service/testing/cluster.h"
#include "service/testing/target.h"

namespace xlad::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CutLink : public ::testing::Test {
 protected:
  // Sends a heartbeat of the worker on `connection`. It reports that the machine of `peer` has not answered for
  // `silent_ms`.
  void Beat(int64_t connection, const std::string& peer = "", int64_t silent_ms = 0) {
    WorkerMessage message;
    RunningTask* const task = message.mutable_heartbeat()->add_running();
    *task = cluster_.Task(job_, 12);
    if (!peer.empty()) {
      task->add_silent()->set_worker_id(peer);
      task->mutable_silent(0)->set_silent_ms(silent_ms);
    }
    cluster_.Handle(connection, message);
  }
  // Both workers send heartbeats for `ms`. Worker a reports that b's machine had already been silent for
  // `silent_before_ms` when they began.
  void RunSilent(int64_t ms, int64_t silent_before_ms = 0) {
    for (int64_t t = 0; t <= ms && IsRunning(); t += 100) {
      if (t > 0) cluster_.Advance(100);
      Beat(2);
      Beat(1, "b", silent_before_ms + t);
    }
  }
  bool IsRunning() { return cluster_.Status(job_).state() == RUNNING; }
  std::set<std::string> Placed() {
    std::set<std::string> workers;
    for (const Peer& peer : cluster_.JobOf(job_).placed.peers()) workers.insert(peer.worker_id());
    return workers;
  }

  Cluster cluster_;
  std::string job_ = cluster_.RunningJob();
};

TEST_F(CutLink, IsReportedOnlyWhenBothHaveSentHeartbeatsLongEnough) {
  cluster_.RunFor(5000, {1, 2});
  RunSilent(2400);
  EXPECT_TRUE(IsRunning());
  RunSilent(100, 2400);
  EXPECT_FALSE(IsRunning());
  ASSERT_TRUE(cluster_.sent.back().message.has_launch());  // The launch of the next attempt.
  const auto aborted = std::find_if(cluster_.sent.begin(), cluster_.sent.end(),
                                    [](const SendMessage& sent) { return sent.message.has_abort(); });
  ASSERT_NE(aborted, cluster_.sent.end());
  EXPECT_THAT(aborted->message.abort().reason(),
              AllOf(HasSubstr("worker a (ranks 0, 1; host host, pid 101)"),
                    HasSubstr("worker b (ranks 2, 3; host host, pid 102)"), HasSubstr("for 2.5 s at step 12"),
                    HasSubstr("the link between them is down")));
}

TEST_F(CutLink, IsNotTheReasonIfThePeerDoesNotReachTheCoordinatorEither) {
  cluster_.RunFor(5000, {1, 2});
  for (int64_t t = 0; t <= 9000; t += 100) {
    cluster_.Advance(100);
    Beat(1, "b", t);
    ASSERT_TRUE(IsRunning()) << "after " << t << " ms";
  }
}

TEST_F(CutLink, MayRecoverForAsLongAsTheWorkerWasCutOff) {
  cluster_.RunFor(5000, {1, 2});
  for (int64_t t = 0; t < 6000; t += 100) {
    cluster_.Advance(100);
    Beat(1, "b", t);
  }
  RunSilent(8400, 6000);  // Both workers reach the coordinator again. The 6 s before this do not count.
  EXPECT_TRUE(IsRunning());
  RunSilent(200, 14'400);
  EXPECT_FALSE(IsRunning());
}

TEST_F(CutLink, IsFoundAgainAfterARestartOfTheCoordinator) {
  cluster_.RunFor(5000, {1, 2});
  const RunningTask task = cluster_.Task(job_, 12);
  cluster_.Restart();
  cluster_.Register(1, "a", 1, {task});
  cluster_.Register(2, "b", 1, {task});
  RunSilent(2400, 60'000);
  EXPECT_TRUE(IsRunning());
  RunSilent(200, 62'400);
  EXPECT_FALSE(IsRunning());
}

TEST_F(CutLink, KeepsTheWorkersApartForAMinuteIfOthersAreFree) {
  cluster_.Register(3, "c");
  RunSilent(2600);
  ASSERT_EQ(cluster_.JobOf(job_).attempt, 2);
  EXPECT_EQ(Placed(), (std::set<std::string>{"a", "c"}));
  const ListWorkersResponse listed = cluster_.coordinator().workers().List();
  for (const auto& worker : listed.workers()) {
    EXPECT_EQ(worker.reason().find("it does not reach ") != std::string::npos, worker.id() != "c") << worker.reason();
  }
  cluster_.Start(job_, {1, 3});
  cluster_.RunFor(60'000, {1, 2, 3});
  cluster_.Gone(3);
  cluster_.RunFor(12'000, {1, 2});  // Worker c is lost.
  EXPECT_EQ(cluster_.JobOf(job_).attempt, 3);
  EXPECT_EQ(Placed(), (std::set<std::string>{"a", "b"}));
}

TEST_F(CutLink, IsIgnoredByPlacementIfThereAreNoOtherWorkers) {
  RunSilent(2600);
  cluster_.RunFor(1000, {1, 2});
  EXPECT_EQ(cluster_.JobOf(job_).attempt, 2);
  EXPECT_EQ(Placed(), (std::set<std::string>{"a", "b"}));
}

// Whether workers a and b of the five workers cannot reach each other. `cuts` has one bit per pair of workers.
bool IsCutIn(int cuts, int a, int b) {
  constexpr int kFirstBit[] = {0, 4, 7, 9};  // The bit of the first pair whose lower worker is 0, 1, 2 or 3.
  const int low = std::min(a, b), high = std::max(a, b);
  return low != high && (cuts >> (kFirstBit[low] + high - low - 1) & 1) != 0;
}

// Whether any three of the five workers reach each other.
bool HasThreeConnected(int cuts) {
  for (int a = 0; a < 5; ++a) {
    for (int b = a + 1; b < 5; ++b) {
      for (int c = b + 1; c < 5; ++c) {
        if (!IsCutIn(cuts, a, b) && !IsCutIn(cuts, a, c) && !IsCutIn(cuts, b, c)) return true;
      }
    }
  }
  return false;
}

// Tries every graph on five workers.
TEST(TakeConnected, FindsWorkersThatReachEachOtherIfThereAreAny) {
  const Target target = TargetOf("cpu", "");
  std::vector<RegisterWorker> workers(5);
  std::vector<WorkerDevices> free;
  for (int w = 0; w < 5; ++w) {
    workers[w].set_worker_id(absl::StrCat("w", w));
    DeviceOffer offer;
    offer.set_count(1);
    *offer.mutable_target() = target;
    free.push_back({&workers[w], offer, 1});
  }
  const auto number = [](const std::string& id) { return id[1] - '0'; };
  const TakePeers take = [&](FreeDevices* from, const FreeDevices::MayHave& may_have) {
    return may_have == nullptr ? from->Take(3, target) : from->TakeFrom(may_have, 3, target);
  };
  for (int cuts = 0; cuts < 1 << 10; ++cuts) {
    const auto is_cut = [&](const auto& a, const auto& b) { return IsCutIn(cuts, number(a), number(b)); };
    CutPairs pairs;
    for (int a = 0; a < 5; ++a) {
      for (int b = a + 1; b < 5; ++b) {
        if (IsCutIn(cuts, a, b)) pairs.push_back({absl::StrCat("w", a), absl::StrCat("w", b)});
      }
    }
    FreeDevices devices(free);
    const std::vector<Peer> peers = TakeConnected(nullptr, pairs, take, &devices);
    ASSERT_EQ(peers.size(), 3u);
    EXPECT_EQ(devices.Count(target), 2);
    bool connected = true;
    for (const Peer& a : peers) {
      for (const Peer& b : peers) connected = connected && !is_cut(a.worker_id(), b.worker_id());
    }
    EXPECT_EQ(connected, HasThreeConnected(cuts)) << "cuts " << cuts;
  }
}

}  // namespace
}  // namespace xlad::service
