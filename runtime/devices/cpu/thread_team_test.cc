#include "runtime/devices/cpu/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace xlad::runtime {
namespace {

TEST(ThreadTeam, EachTileIsComputedOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadTeam team(threads);
    for (const int64_t tiles : {0, 1, 2, 3, 8, 1000, 12345}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(tiles));
      std::atomic<int> wrong_threads = 0;
      const int32_t code = team.Run(tiles, [&](int thread, int64_t begin, int64_t end) {
        wrong_threads += thread < 0 || thread >= threads ? 1 : 0;
        for (int64_t tile = begin; tile < end; ++tile) ++calls[tile];
        return 0;
      });
      EXPECT_EQ(code, 0);
      EXPECT_EQ(wrong_threads, 0);
      for (const std::atomic<int>& count : calls) ASSERT_EQ(count, 1) << threads << " threads, " << tiles << " tiles";
    }
  }
}

TEST(ThreadTeam, ThreadsThatRunAtTheSameTimeHaveDifferentNumbers) {
  ThreadTeam team(5);
  std::vector<std::atomic<int>> active(5);
  std::atomic<int> clashes = 0;
  for (int round = 0; round < 200; ++round) {
    team.Run(100, [&](int thread, int64_t, int64_t) {
      clashes += active[thread].fetch_add(1);
      active[thread].fetch_sub(1);
      return 0;
    });
  }
  EXPECT_EQ(clashes, 0);
}

// Each of the two tiles waits for the other one to start, so different threads compute them.
TEST(ThreadTeam, OtherThreadsTakePart) {
  ThreadTeam team(2);
  std::atomic<int> arrived = 0;
  team.Run(2, [&](int, int64_t begin, int64_t end) {
    arrived += static_cast<int>(end - begin);
    while (arrived < 2) std::this_thread::yield();
    return 0;
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadTeam, ReturnsAFailure) {
  for (const int threads : {1, 2, 7}) {
    ThreadTeam team(threads);
    for (int round = 0; round < 50; ++round) {
      const int32_t code = team.Run(64, [&](int, int64_t begin, int64_t end) {
        for (int64_t tile = begin; tile < end; ++tile) {
          if (tile % 10 == 3) return static_cast<int32_t>(100 + tile);
        }
        return 0;
      });
      EXPECT_EQ(code % 10, 3);
      EXPECT_EQ(team.Run(64, [](int, int64_t, int64_t) { return 0; }), 0) << "the next work is not affected";
    }
  }
}

TEST(ThreadTeam, SleepsAndWakesBetweenPiecesOfWork) {
  ThreadTeam team(3);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int64_t> sum = 0;
    team.Run(10, [&](int, int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) sum += tile;
      return 0;
    });
    EXPECT_EQ(sum, 45);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // The other threads spin for about 30 us.
  }
}

TEST(ThreadTeam, EndsWithoutWork) { ThreadTeam team(4); }

}  // namespace
}  // namespace xlad::runtime
