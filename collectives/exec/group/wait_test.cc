#include "collectives/exec/group/wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/process/process_state.h"
#include "base/testing/test_folder.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Rank 0 is this process, and rank 1 a child process that waits until it is killed.
class GroupOfTwo : public ::testing::Test {
 protected:
  void SetUp() override {
    auto control = ControlFile::Create(folder_.path() + "/control", 2);
    ASSERT_TRUE(control.ok()) << control.status();
    control_ = *std::move(control);
    child_ = fork();
    if (child_ == 0) {
      while (true) pause();
    }
    control_->rank(0).pid = getpid();
    control_->rank(1).pid = child_;
  }
  void KillRank1() {
    kill(child_, SIGKILL);
    ASSERT_EQ(waitpid(child_, nullptr, 0), child_);
  }

  const TestFolder folder_;
  std::unique_ptr<ControlFile> control_;
  pid_t child_ = -1;
};

std::atomic<int> alarms = 0;

// A signal that arrives during poll makes it fail, which says nothing about the process.
TEST_F(GroupOfTwo, SignalsDoNotMakeARankDead) {
  GroupWaiter waiter(control_.get(), 0, /*exclusive=*/false);
  ASSERT_TRUE(waiter.WatchPeers().ok());
  struct sigaction action{};
  action.sa_handler = [](int) { ++alarms; };
  struct sigaction before{};
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{{0, 20}, {0, 20}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  int dead = 0;
  while (alarms < 1000) dead += waiter.IsAlive(1) && waiter.CheckPeer(1).ok() ? 0 : 1;
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_EQ(dead, 0);
  KillRank1();
  EXPECT_FALSE(waiter.IsAlive(1));
}

TEST_F(GroupOfTwo, ARankThatIsKilledAfterAnErrorOfMessagesHasDied) {
  RankBlock& killed = control_->rank(1);
  killed.messages.failed = 1;
  GroupWaiter waiter(control_.get(), 0, /*exclusive=*/false);
  EXPECT_EQ(waiter.WatchPeers(), absl::OkStatus());
  EXPECT_EQ(waiter.CheckPeer(1), absl::OkStatus()) << "the rank may continue with operations on mapped memory";
  KillRank1();
  EXPECT_THAT(std::string(waiter.CheckPeer(1).message()), HasSubstr("has died"));
  killed.left = RankBlock::kLeftInOrder;
  EXPECT_THAT(std::string(waiter.CheckPeer(1).message()), HasSubstr("has stopped after an error"));
  killed.messages.failed = 0;
  EXPECT_THAT(std::string(waiter.CheckPeer(1).message()), HasSubstr("has left the group"));
}

// Rank 1 has ended, and a process that started later has its id.
TEST_F(GroupOfTwo, AProcessWithAReusedIdIsNotWatched) {
  control_->rank(1).start_ticks = StartOfProcess(child_);
  EXPECT_EQ(GroupWaiter(control_.get(), 0, /*exclusive=*/false).WatchPeers(), absl::OkStatus());
  --control_->rank(1).start_ticks;
  const absl::Status status = GroupWaiter(control_.get(), 0, /*exclusive=*/false).WatchPeers();
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("rank 1"), HasSubstr("has died")));
  KillRank1();
}

TEST(GroupWait, RanksHaveOneOrderIfNeitherIsAheadInOneKindAndBehindInTheOther) {
  EXPECT_TRUE(AreInOneOrder({3, 5}, {3, 5}));
  EXPECT_TRUE(AreInOneOrder({3, 5}, {4, 5}));
  EXPECT_TRUE(AreInOneOrder({3, 9}, {3, 5}));
  EXPECT_TRUE(AreInOneOrder({4, 9}, {3, 5}));
  EXPECT_FALSE(AreInOneOrder({4, 5}, {3, 6}));
  EXPECT_FALSE(AreInOneOrder({3, 6}, {4, 5}));
}

TEST(GroupWait, RanksInTheSameOperationOnMemoryHaveEnteredTheSameOperationsWithMessages) {
  for (const bool one : {false, true}) {
    for (const bool other : {false, true}) {
      const RankPosition position{.mapped = 3, .messages = 5, .is_inside = one};
      EXPECT_TRUE(AreInOneOrder(position, {.mapped = 3, .messages = 5, .is_inside = other}));
      EXPECT_TRUE(AreInOneOrder(position, {.mapped = 4, .messages = 6, .is_inside = other}));
      EXPECT_EQ(AreInOneOrder(position, {.mapped = 3, .messages = 6, .is_inside = other}), !one || !other);
      EXPECT_EQ(AreInOneOrder({.mapped = 3, .messages = 6, .is_inside = other}, position), !one || !other);
    }
  }
}

class OrderTest : public ::testing::Test {
 protected:
  // Rank 0 has entered an operation on mapped memory instead of an operation with messages, which rank 1 has entered.
  OrderTest() {
    for (int rank = 0; rank < 2; ++rank) {
      RankBlock& block = control_->rank(rank);
      block.SetProcess();
      block.SetText(1, "on memory");
      block.SetText(2, "with messages");
      block.lines[0].operation = block.lines[1].operation = 1;
      block.lines[1].sequence = 1;
      block.messages.operation = 2;
    }
    control_->rank(0).lines[0].sequence = 2;
    control_->rank(1).messages.entered = 1;
  }

  // The check of a rank that waits for the other one.
  absl::Status Check(int rank) {
    GroupWaiter waiter(control_.get(), rank, /*exclusive=*/false);
    XLAD_RETURN_IF_ERROR(waiter.WatchPeers());
    XLAD_RETURN_IF_ERROR(waiter.CheckPeers());
    return waiter.CheckPeer(1 - rank);
  }

  const TestFolder folder_;
  const std::unique_ptr<ControlFile> control_ = *ControlFile::Create(folder_.path() + "/control", 2);
};

// If rank 1 need not wait in its operation with messages, it may have entered an operation on mapped memory since.
TEST_F(OrderTest, TheOperationsThatDifferAreNamed) {
  for (const uint64_t after : {1, 0}) {
    control_->rank(1).messages.after = after;
    EXPECT_TRUE(absl::IsFailedPrecondition(Check(1)));
    EXPECT_THAT(std::string(Check(0).message()),
                AllOf(HasSubstr("rank 0 runs on memory"), HasSubstr("runs with messages")));
    EXPECT_THAT(std::string(Check(1).message()),
                AllOf(HasSubstr("rank 1 runs with messages"), HasSubstr("runs on memory")));
  }
}

// Rank 1 need not wait in its operation with messages, which rank 0 has left out. Both are in the next operation.
TEST_F(OrderTest, AnOperationThatOneRankHasLeftOutIsNamed) {
  control_->rank(0).finished = control_->rank(1).finished = 1;
  control_->rank(1).messages.after = 1;
  control_->rank(1).lines[0].sequence = 2;
  EXPECT_THAT(std::string(Check(0).message()),
              AllOf(HasSubstr("rank 0 runs on memory"), HasSubstr("runs with messages")));
  EXPECT_THAT(std::string(Check(1).message()),
              AllOf(HasSubstr("rank 1 runs with messages"), HasSubstr("runs on memory")));
  control_->rank(0).finished = 2;
  EXPECT_EQ(Check(0), absl::OkStatus()) << "rank 0 may have entered the operation with messages since";
  control_->rank(0).finished = 1;
  control_->rank(1).messages.after = 2;
  EXPECT_EQ(Check(0), absl::OkStatus()) << "rank 1 has entered it after an error in mapped memory";
}

// Rank 0 may continue in mapped memory after an error of messages that rank 1 has not noticed.
TEST_F(OrderTest, RanksDoNotDisagreeBecauseMessagesFailed) {
  control_->rank(0).messages.failed = 1 + 1;
  EXPECT_EQ(Check(0), absl::OkStatus());
  EXPECT_EQ(Check(1), absl::OkStatus());
  control_->rank(0).messages.failed = 1 + 2;  // The error came later.
  EXPECT_TRUE(absl::IsFailedPrecondition(Check(0)));
  EXPECT_TRUE(absl::IsFailedPrecondition(Check(1)));
  control_->rank(0).messages.failed = 0;
  control_->rank(1).messages.failed = 1 + 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(Check(0))) << "rank 1 cannot have failed before it entered the operation";
}

TEST(GroupWait, ARankOnThisCoreThatIsLateMustNotBeKeptFromRunning) {
  constexpr int kRanks = 4;
  const int64_t bytes = ControlFile::BytesFor(kRanks);
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)), &std::free);
  std::fill_n(memory.get(), bytes, std::byte{0});
  const std::unique_ptr<ControlFile> control = ControlFile::InMemory(memory.get(), kRanks, /*create=*/true);
  // Ranks 0 and 1 share core 0; rank 2 waits on core 1; rank 3 has not waited yet.
  const int cores[] = {0, 0, 1, -1};
  for (int rank = 0; rank < kRanks; ++rank) {
    control->rank(rank).core = cores[rank];
    control->rank(rank).lines[1].sequence = 7;
  }
  control->rank(0).lines[0].sequence = 8;
  EXPECT_FALSE(OnlyOtherCoresAreLate(*control, 0, 0));
  control->rank(1).lines[0].sequence = 8;
  EXPECT_TRUE(OnlyOtherCoresAreLate(*control, 0, 0));
  // If rank 0 has moved to core 1 since its last long wait, rank 2 is late there.
  EXPECT_FALSE(OnlyOtherCoresAreLate(*control, 0, 1));
  control->rank(2).lines[0].sequence = 8;
  control->rank(1).lines[1].sequence = 9;
  EXPECT_TRUE(OnlyOtherCoresAreLate(*control, 0, 1));
}

}  // namespace
}  // namespace xlad::collectives
