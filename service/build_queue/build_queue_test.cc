// Builds that run until the test ends them: which of them run at once, in which order, and how they are canceled.
#include "service/build_queue/build_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <set>
#include <vector>

namespace xlad::service {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class BuildQueueTest : public ::testing::Test {
 protected:
  static BuildQueueOptions Options(const Clock* clock) {
    return {.young = 2, .all = 4, .not_urgent = 2, .old_after_ms = 1000, .clock = clock};
  }

  // Adds a build that ends when the test ends it or when it is canceled. Without `job`, it belongs to a job of its
  // name.
  int64_t Add(const std::string& name, bool is_urgent = true, const std::string& job = "") {
    const auto work = [this, name](CancelSignal* cancel) {
      std::unique_lock<std::mutex> lock(mutex_);
      started_.push_back(name);
      changed_.notify_all();
      // The signal does not notify this condition variable, so the loop polls the signal.
      while (!let_end_.contains(name) && !cancel->raised()) changed_.wait_for(lock, std::chrono::milliseconds(5));
      if (cancel->raised()) canceled_.insert(name);
      ended_.insert(name);
      changed_.notify_all();
    };
    return queue_.Add(job.empty() ? name : job, work, is_urgent);
  }
  void LetEnd(const std::string& job) {
    std::unique_lock<std::mutex> lock(mutex_);
    let_end_.insert(job);
    changed_.notify_all();
    changed_.wait(lock, [&] { return ended_.contains(job); });
  }
  std::vector<std::string> WaitForStarted(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return started_.size() >= count; });
    return started_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> started_;
  std::set<std::string> let_end_, ended_, canceled_;
  ManualClock clock_{int64_t{1'000'000} * kNsPerMs};
  BuildQueue queue_{Options(&clock_)};
};

TEST_F(BuildQueueTest, StartsBuildsInOrderUpToTheLimit) {
  for (const char* job : {"a", "b", "c", "d"}) Add(job);
  EXPECT_EQ(WaitForStarted(2).size(), 2u);
  LetEnd("b");
  const auto started = WaitForStarted(3);
  EXPECT_EQ(started[2], "c");
  EXPECT_EQ(started.size(), 3u) << "a and c run";
  LetEnd("a");
  EXPECT_EQ(WaitForStarted(4)[3], "d");
  LetEnd("c");
  LetEnd("d");
}

TEST_F(BuildQueueTest, BuildsThatTakeLongDoNotBlockOthers) {
  for (const char* job : {"long1", "long2", "short"}) Add(job);
  EXPECT_EQ(WaitForStarted(2).size(), 2u);
  clock_.Advance(1001 * kNsPerMs);
  EXPECT_EQ(WaitForStarted(3)[2], "short");
  LetEnd("short");
  LetEnd("long1");
  LetEnd("long2");
}

// The engine stops the queue while threads of requests may still add builds.
TEST_F(BuildQueueTest, AStoppedQueueDropsBuilds) {
  for (const char* job : {"a", "b", "c"}) Add(job);
  WaitForStarted(2);
  queue_.Stop();
  Add("d");
  const auto held = std::make_shared<int>(0);
  queue_.Add("e", [held](CancelSignal*) {});
  EXPECT_EQ(held.use_count(), 1) << "callers that wait for the build would wait forever";
  queue_.Cancel("d");
  queue_.Stop();
  std::lock_guard<std::mutex> lock(mutex_);
  EXPECT_THAT(canceled_, ElementsAre("a", "b"));
  EXPECT_THAT(started_, UnorderedElementsAre("a", "b"));
}

TEST_F(BuildQueueTest, CancelEndsRunningBuildsAndDropsWaitingBuilds) {
  for (const char* job : {"a", "b", "c", "d"}) Add(job);
  WaitForStarted(2);
  queue_.Cancel("c");
  queue_.Cancel("a");
  EXPECT_EQ(WaitForStarted(3)[2], "d") << "c was dropped";
  LetEnd("b");
  LetEnd("d");
  std::lock_guard<std::mutex> lock(mutex_);
  EXPECT_THAT(canceled_, ElementsAre("a"));
}

TEST_F(BuildQueueTest, CancelOneLeavesTheOtherBuildsOfItsJob) {
  const int64_t running = Add("a", /*is_urgent=*/true, "job");
  Add("b", /*is_urgent=*/true, "job");
  const int64_t waiting = Add("c", /*is_urgent=*/true, "job");
  Add("d", /*is_urgent=*/true, "job");
  WaitForStarted(2);
  queue_.CancelOne(waiting);
  queue_.CancelOne(running);
  EXPECT_EQ(WaitForStarted(3)[2], "d") << "c was dropped";
  LetEnd("b");
  LetEnd("d");
  queue_.CancelOne(running);  // It has ended.
  std::lock_guard<std::mutex> lock(mutex_);
  EXPECT_THAT(canceled_, ElementsAre("a"));
}

TEST_F(BuildQueueTest, BuildsThatAreNotUrgentWaitAndTakeNoRoom) {
  Add("a");
  Add("b");
  WaitForStarted(2);
  for (const char* job : {"later1", "later2"}) Add(job, /*is_urgent=*/false);
  EXPECT_EQ(WaitForStarted(3)[2], "later1") << "one in addition to the urgent ones";
  Add("c");
  LetEnd("a");
  EXPECT_EQ(WaitForStarted(4)[3], "c") << "later1 does not count toward the limit";
  Add("d");
  Add("e");  // Waits after d has started, so that later2 cannot start at the same time as d.
  LetEnd("later1");
  LetEnd("b");
  EXPECT_EQ(WaitForStarted(5)[4], "d") << "d is urgent";
  queue_.Cancel("e");
  LetEnd("c");
  EXPECT_EQ(WaitForStarted(6)[5], "later2");
  queue_.Cancel("later2");
  LetEnd("d");
}

TEST_F(BuildQueueTest, LongBuildsThatAreNotUrgentLeaveRoomForFewOthers) {
  for (const char* job : {"long1", "long2", "long3"}) Add(job, /*is_urgent=*/false);
  EXPECT_THAT(WaitForStarted(1), ElementsAre("long1"));
  clock_.Advance(1001 * kNsPerMs);
  EXPECT_THAT(WaitForStarted(2), ElementsAre("long1", "long2"));
  clock_.Advance(1001 * kNsPerMs);
  Add("urgent");
  EXPECT_THAT(WaitForStarted(3), ElementsAre("long1", "long2", "urgent")) << "at most two that are not urgent";
  LetEnd("long1");
  EXPECT_EQ(WaitForStarted(4)[3], "long3");
  for (const char* job : {"urgent", "long2", "long3"}) LetEnd(job);
}

TEST_F(BuildQueueTest, TheDestructorCancelsRunningBuilds) {
  std::promise<void> started;
  bool was_canceled = false;
  {
    BuildQueue queue(Options(&clock_));
    queue.Add("a", [&](CancelSignal* cancel) {
      started.set_value();
      pollfd raised{cancel->fd(), POLLIN, 0};
      was_canceled = poll(&raised, 1, 60'000) == 1;
    });
    started.get_future().wait();
  }
  EXPECT_TRUE(was_canceled);
}

}  // namespace
}  // namespace xlad::service
