// Counts the instructions of the coordinator's tick, because times would depend on the machine. The test single-steps a
// child process that has a copy of the cluster.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/testing/case_count.h"
#include "service/testing/cluster.h"

namespace xlad::simulation {
namespace {

using service::Cluster;

const bool kQuietTicks = (SetLogLevel(LogLevel::kError), true);

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define XLAD_IS_SANITIZED 1
#endif
#endif

constexpr char kCannotCount[] =
    "instructions cannot be counted: this build has a sanitizer, or the system does not allow single-stepping";

// Returns the number of instructions that `run` executes in a copy of this process, or -1 if they cannot be counted.
int64_t InstructionsOf(const std::function<void()>& run) {
#ifdef XLAD_IS_SANITIZED
  return -1;  // The test is skipped with sanitizers, because they add too many instructions.
#endif
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    raise(SIGSTOP);
    run();
    raise(SIGUSR1);
    _exit(0);
  }
  int status = 0;
  int64_t count = 0;
  bool is_stopped = waitpid(child, &status, 0) == child && WIFSTOPPED(status);
  while (is_stopped && WSTOPSIG(status) != SIGUSR1) {
    ++count;
    is_stopped = ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) == 0 && waitpid(child, &status, 0) == child &&
                 WIFSTOPPED(status);
  }
  if (is_stopped) kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return is_stopped ? count : -1;
}

struct Load {
  int workers, attempts;
  int peers;  // The number of workers of each attempt.
  // The number of jobs that wait for more devices than the cluster has. The same number of other jobs are queued after
  // a job that waits for busy devices.
  int waiting;
  // If it is not 0, the jobs belong in turn to this many owners, and one device of each running attempt's last worker
  // remains free. The job that waits then blocks only later jobs of its owner.
  int owners = 0;

  std::string Key(const char* name, int number) const {
    return absl::StrCat(owners > 0 ? absl::StrCat("@user", number % owners, "/") : "", name, " ", number);
  }
};

class TickWork : public ::testing::Test {
 protected:
  static std::unique_ptr<Cluster> Make(const Load& load) {
    auto cluster = std::make_unique<Cluster>();
    for (int w = 0; w < load.workers; ++w) cluster->Register(w + 1, absl::StrCat("w", w));
    for (int a = 0; a < load.attempts; ++a) {
      const int64_t devices = int64_t{2} * load.peers - (load.owners > 0 ? 1 : 0);
      const std::string job = cluster->Submit(devices, load.Key("running", a));
      cluster->Built();
      for (const Peer& peer : cluster->JobOf(job).placed.peers()) cluster->Ready(ConnectionOf(peer), job);
      EXPECT_EQ(cluster->Status(job).state(), RUNNING);
    }
    for (int i = 0; i < load.waiting; ++i) {
      cluster->Submit(int64_t{2} * load.workers + 1, load.Key("large", i));
      cluster->Built();
    }
    cluster->Submit(int64_t{2} * load.workers, load.Key("blocking", 0));
    cluster->Built();
    for (int i = 0; i < load.waiting; ++i) {
      const size_t builds = cluster->builds.size();
      cluster->Submit(1, load.Key("behind", i));
      if (cluster->builds.size() > builds) cluster->Built();
    }
    cluster->Advance(100);
    return cluster;
  }
  static int64_t ConnectionOf(const Peer& peer) { return peer.pid() - 100; }  // See Cluster::Register.
  static const service::Job& Running(Cluster* cluster) {
    return *cluster->coordinator().context().jobs.by_number().begin()->second;
  }

  // The events whose instructions are counted.
  static void Tick(Cluster* cluster) {
    cluster->clock.Advance(100 * kNsPerMs);
    cluster->Do(nullptr, /*tick=*/true);
    (void)cluster->coordinator().Status();
  }
  static void Beat(Cluster* cluster) {
    const service::Job& job = Running(cluster);
    cluster->Beat(ConnectionOf(job.placed.peers(0)), job.id.str(), 7);
  }
  static void Cancel(Cluster* cluster) {
    const service::JobId job = Running(cluster).id;
    cluster->Do([&](service::CoordinatorCore& core) { (void)core.Cancel(job); });
  }
  static int64_t WorkOf(const Load& load, void (*what)(Cluster*)) {
    what(Make({2, 1, 1, 1}).get());  // The first call is not counted, because libraries initialize themselves in it.
    const std::unique_ptr<Cluster> cluster = Make(load);
    return InstructionsOf([&] { what(cluster.get()); });
  }
};

TEST_F(TickWork, DoesNotGrowWithJobsThatWait) {
  const std::pair<const char*, void (*)(Cluster*)> events[] = {
      {"a tick", Tick}, {"a heartbeat", Beat}, {"the end of a job", Cancel}};
  for (const auto& [name, event] : events) {
    for (const int owners : {0, 3}) {
      // To single-step the end of a job takes several seconds.
      if (!AllCases() && event == Cancel && owners == 0) continue;
      const int64_t few = WorkOf({4, 2, 1, 20, owners}, event), many = WorkOf({4, 2, 1, 800, owners}, event);
      if (few < 0 || many < 0) GTEST_SKIP() << kCannotCount;
      std::printf("%s with %d owners: %lld instructions with 40 jobs that wait, %lld with 1600\n", name, owners,
                  static_cast<long long>(few), static_cast<long long>(many));
      EXPECT_LE(many, few + few / 5 + 1000) << name << " with " << owners << " owners";
    }
  }
}

TEST_F(TickWork, DoesNotGrowWithThePeersOfWorkers) {
  const int64_t few = WorkOf({200, 2, 2, 0}, Tick), many = WorkOf({200, 2, 100, 0}, Tick);
  if (few < 0 || many < 0) GTEST_SKIP() << kCannotCount;
  std::printf("a tick with 200 workers: %lld instructions with attempts of 2 workers, %lld with attempts of 100\n",
              static_cast<long long>(few), static_cast<long long>(many));
  EXPECT_LE(many, few + few / 5 + 1000);
}

TEST_F(TickWork, AHeartbeatDoesNotGrowWithThePeersOfItsWorker) {
  const int64_t few = WorkOf({200, 2, 2, 0}, Beat), many = WorkOf({200, 2, 100, 0}, Beat);
  if (few < 0 || many < 0) GTEST_SKIP() << kCannotCount;
  std::printf("a heartbeat: %lld instructions with attempts of 2 workers, %lld with attempts of 100\n",
              static_cast<long long>(few), static_cast<long long>(many));
  EXPECT_LE(many, few + few / 5 + 1000);
}

TEST_F(TickWork, ALaunchGrowsNoFasterThanItsWorkers) {
  const auto ready = [](int workers) {
    auto cluster = std::make_unique<Cluster>();
    cluster->keeps_sent = false;
    for (int w = 0; w < workers; ++w) cluster->Register(w + 1, absl::StrCat("w", w));
    cluster->Submit(int64_t{2} * workers);
    return cluster;
  };
  const auto work = [&](int workers) {
    ready(2)->Built();  // The first time, libraries initialize themselves.
    const std::unique_ptr<Cluster> cluster = ready(workers);
    return InstructionsOf([&] { cluster->Built(); });
  };
  const int64_t few = work(2), many = work(6);
  if (few < 0 || many < 0) GTEST_SKIP() << kCannotCount;
  std::printf("a launch: %lld instructions with 2 workers, %lld with 6\n", static_cast<long long>(few),
              static_cast<long long>(many));
  EXPECT_LE(many, 3 * few) << "3 times as many workers, expected at most 3 times as many instructions";
}

TEST_F(TickWork, GrowsNoFasterThanTheWorkersAndAttempts) {
  const int64_t few = WorkOf({25, 3, 5, 0}, Tick), many = WorkOf({200, 24, 5, 0}, Tick);
  if (few < 0 || many < 0) GTEST_SKIP() << kCannotCount;
  std::printf("a tick: %lld instructions with 25 workers and 3 attempts, %lld with 200 and 24\n",
              static_cast<long long>(few), static_cast<long long>(many));
  EXPECT_LE(many, 12 * few) << "8 times as many workers and attempts, expected at most 12 times as many instructions";
}

// Prints how long the coordinator takes for a tick, a heartbeat and the end of a job, and for the pass over the jobs
// after a worker has left. XLAD_TICK_WORKERS is the number of workers, 420 or more. 5 jobs per worker wait for devices.
// XLAD_TICK_OWNERS is the number of owners of the jobs.
TEST_F(TickWork, TimesOfALargeCluster) {
  const char* const text = std::getenv("XLAD_TICK_WORKERS");
  if (text == nullptr) GTEST_SKIP() << "XLAD_TICK_WORKERS is not set";
  const int workers = std::atoi(text);
  constexpr int kTimes = 21;
  constexpr int kPeers = 10;
  ASSERT_GE(workers, 2 * kTimes * kPeers) << "XLAD_TICK_WORKERS is too small: each repetition ends an attempt";
  const char* const owners = std::getenv("XLAD_TICK_OWNERS");
  const Load load{workers, std::max(kTimes + 1, workers / 100), kPeers, workers / 2 * 5,
                  owners == nullptr ? 0 : std::atoi(owners)};
  const std::unique_ptr<Cluster> cluster = Make(load);
  const auto leave = [](Cluster* from) {
    from->Gone(from->coordinator().context().connections.begin()->first.value());
  };
  const auto end = [](Cluster* of) {
    const service::JobId job = of->coordinator().context().attempts.begin()->first;
    of->Do([&](service::CoordinatorCore& core) { (void)core.Cancel(job); });
  };
  const std::pair<const char*, std::function<void(Cluster*)>> events[] = {
      {"a tick", Tick}, {"a heartbeat", Beat}, {"the end of a job", end}, {"a worker that leaves", leave}};
  std::printf("%d workers, %d attempts, %d jobs that wait, %d owners\n", workers, load.attempts, 2 * load.waiting + 1,
              load.owners);
  for (const auto& [name, event] : events) {
    std::vector<double> times;
    for (int i = 0; i < kTimes; ++i) {
      const auto start = std::chrono::steady_clock::now();
      event(cluster.get());
      times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());
    std::printf("%s: median %.2f ms, longest %.2f ms\n", name, times[kTimes / 2], times.back());
  }
}

// Prints how long the coordinator takes for the phases of one job on all devices of XLAD_JOB_WORKERS workers: each is
// one batch of events.
TEST_F(TickWork, TimesOfALargeJob) {
  const char* const text = std::getenv("XLAD_JOB_WORKERS");
  if (text == nullptr) GTEST_SKIP() << "XLAD_JOB_WORKERS is not set";
  const int workers = std::atoi(text);
  Cluster cluster;
  cluster.keeps_sent = false;
  const auto time = [&](const char* what, const std::function<void()>& run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    std::printf("%s: %.1f ms\n", what,
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  };
  for (int w = 0; w < workers; ++w) cluster.Register(w + 1, absl::StrCat("w", w));
  const std::string job = cluster.Submit(int64_t{2} * workers);
  const auto for_all = [&](const std::function<void(int64_t connection)>& run) {
    return [=] {
      for (int w = 0; w < workers; ++w) run(w + 1);
    };
  };
  WorkerMessage finished;
  time("the launch", [&] { cluster.Built(); });
  time("all are ready", for_all([&](int64_t connection) { cluster.Ready(connection, job); }));
  time("a heartbeat of each", for_all([&](int64_t connection) { cluster.Beat(connection, job, 7); }));
  cluster.Advance(service::CoordinatorOptions().suspect_ms - 100);
  time("all are silent", [&] { cluster.Advance(100); });
  time("a heartbeat of each", for_all([&](int64_t connection) { cluster.Beat(connection, job, 8); }));
  time("a checkpoint", for_all([&](int64_t connection) { cluster.Shard(connection, job, 10); }));
  cluster.IndexStored();
  time("the last checkpoint", for_all([&](int64_t connection) { cluster.Shard(connection, job, 1000); }));
  cluster.IndexStored();
  cluster.Name(job, finished.mutable_finished());
  (*finished.mutable_finished()->mutable_report()->mutable_launches())["cpu"] = 1;
  time("the end of the job", for_all([&](int64_t connection) { cluster.Handle(connection, finished); }));
  EXPECT_EQ(cluster.Status(job).state(), SUCCEEDED);
}

}  // namespace
}  // namespace xlad::simulation
