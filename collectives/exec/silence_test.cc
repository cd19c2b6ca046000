#include "collectives/exec/silence.h"

#include <gtest/gtest.h>

namespace xlad::collectives {
namespace {

constexpr int64_t kNever = INT64_MAX;

class SilenceTest : public ::testing::Test {
 protected:
  // Records the connection every 100 ms for `ms` milliseconds. No further answer arrives, so the last one becomes
  // older. Returns the peers that have been silent for at least 500 ms, with the time in ms.
  std::map<std::string, int64_t> After(int64_t ms, bool awaited, int64_t last_ms_ago) {
    for (int64_t t = 0; t <= ms; t += 100) {
      watch_.Begin(now_ns_);
      watch_.Note({0, 2}, "b", {awaited, last_ms_ago == kNever ? kNever : last_ms_ago + t});
      now_ns_ += 100 * kNsPerMs;
    }
    return watch_.Silent(500);
  }

  int64_t now_ns_ = 3'600'000 * kNsPerMs;
  SilenceWatch watch_;
};

TEST_F(SilenceTest, BeginsWhenAnAnswerIsAwaitedAndNotWithTheLastAnswer) {
  EXPECT_TRUE(After(5000, /*awaited=*/false, /*last_ms_ago=*/60'000).empty());
  EXPECT_EQ(After(2500, /*awaited=*/true, /*last_ms_ago=*/60'000).at("b"), 2500);
}

TEST_F(SilenceTest, EndsWithAnAnswer) {
  EXPECT_EQ(After(3000, /*awaited=*/true, /*last_ms_ago=*/0).at("b"), 3000);
  EXPECT_TRUE(After(0, /*awaited=*/true, /*last_ms_ago=*/100).empty());
  EXPECT_EQ(After(700, /*awaited=*/true, /*last_ms_ago=*/0).at("b"), 700);
}

TEST_F(SilenceTest, IsReportedForAPeerThatHasNeverAnswered) {
  EXPECT_EQ(After(1200, /*awaited=*/true, kNever).at("b"), 1200);
}

TEST_F(SilenceTest, IsNotReportedIfTheMachineAnswersAnotherConnection) {
  for (int64_t t = 0; t <= 3000; t += 100) {
    watch_.Begin(now_ns_);
    // This connection has waited for `t` ms, because its retransmissions are far apart.
    watch_.Note({0, 2}, "b", {true, t});
    watch_.Note({1, 2}, "b", {false, 50});
    watch_.Note({1, 3}, "c", {true, t});
    now_ns_ += 100 * kNsPerMs;
  }
  const std::map<std::string, int64_t> expected = {{"c", 3000}};
  EXPECT_EQ(watch_.Silent(500), expected);
}

TEST_F(SilenceTest, IsNotReportedForAReplacedConnection) {
  EXPECT_EQ(After(2000, /*awaited=*/true, /*last_ms_ago=*/0).at("b"), 2000);
  watch_.Begin(now_ns_);
  EXPECT_TRUE(watch_.Silent(500).empty());
  EXPECT_TRUE(After(300, /*awaited=*/true, /*last_ms_ago=*/2000).empty());
}

}  // namespace
}  // namespace xlad::collectives
