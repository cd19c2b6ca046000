// Verdicts on control files that the tests write.
#include "collectives/exec/group/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/testing/test_folder.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class VerdictTest : public ::testing::Test {
 protected:
  VerdictTest() {
    control_ = *ControlFile::Create(folder_.path() + "/verdict", 4);
    for (int rank = 0; rank < 4; ++rank) {
      RankBlock& block = control_->rank(rank);
      block.pid = 100 + rank;
      std::strcpy(block.host, "node7");
      std::strcpy(block.texts[1], "all_reduce(sum) f32[8] over 4 ranks");
      std::strcpy(block.texts[2], "broadcast f32[8] over 4 ranks");
      states_.push_back(ProcessState::kRunning);
    }
  }

  // Sets the operations that the rank has entered and finished, and the peer that it waits for.
  void Set(int rank, uint64_t entered, uint64_t finished, int peer, uint64_t operation = 1) {
    RankBlock& block = control_->rank(rank);
    block.lines[entered % 2].sequence.store(entered);
    block.lines[entered % 2].operation = operation;
    block.finished.store(finished);
    block.waits_for.store(peer);
    block.step.store(5);
  }

  // Sets the operations with messages that the rank has entered and finished, and the number of operations on mapped
  // memory before them.
  void SetMessages(int rank, uint64_t entered, uint64_t finished, uint64_t after) {
    MessageOperations& messages = control_->rank(rank).messages;
    messages.after.store(after);
    messages.operation.store(2);
    messages.entered.store(entered);
    messages.finished.store(finished);
  }

  Verdict Explain() const {
    return ExplainGroup(*control_,
                        [this](int64_t pid, uint64_t) { return pid == 0 ? ProcessState::kGone : states_[pid - 100]; });
  }

  const TestFolder folder_;
  std::unique_ptr<ControlFile> control_;
  std::vector<ProcessState> states_;
};

TEST_F(VerdictTest, NoRankWaits) {
  for (int rank = 0; rank < 4; ++rank) Set(rank, 7, 7, -1);
  EXPECT_THAT(Explain().culprits, IsEmpty());
  EXPECT_EQ(Explain().text, "No rank waits; 7 operations were entered.");
}

TEST_F(VerdictTest, RanksThatHaveNotJoined) {
  control_->rank(2).pid = 0;
  EXPECT_THAT(Explain().culprits, ElementsAre(2));
  EXPECT_EQ(Explain().text, "rank 2 has not joined the group.");
  control_->rank(3).pid = 0;
  EXPECT_EQ(Explain().text, "ranks 2 and 3 have not joined the group.");
}

// If rank 2 joined, the group would still wait for ranks 0 and 3. Rank 1 has given up.
TEST_F(VerdictTest, RanksThatDiedOrAreStoppedBeforeAllHaveJoined) {
  control_->rank(2).pid = 0;
  states_[0] = ProcessState::kStopped;
  states_[1] = ProcessState::kGone;
  control_->rank(1).left.store(RankBlock::kLeftAfterError);
  states_[3] = ProcessState::kGone;
  EXPECT_THAT(Explain().culprits, ElementsAre(0, 2, 3));
  EXPECT_EQ(Explain().text,
            "rank 2 has not joined the group.\n"
            "rank 0 (host node7, pid 100) is stopped by a signal or a debugger before its first operation.\n"
            "rank 3 (host node7, pid 103) has died before its first operation.");
}

TEST_F(VerdictTest, ARankThatNeverEntered) {
  for (int rank = 0; rank < 3; ++rank) Set(rank, 1412, 1411, 3);
  Set(3, 1411, 1411, -1);
  const Verdict verdict = Explain();
  EXPECT_THAT(verdict.culprits, ElementsAre(3));
  EXPECT_THAT(verdict.text,
              AllOf(HasSubstr("rank 3 (host node7, pid 103) never entered operation 1412"),
                    HasSubstr("rank 0 waits in operation 1412 (all_reduce(sum) f32[8] over 4 ranks) at step 5 "
                              "for rank 3")));
}

TEST_F(VerdictTest, OtherRanksHaveFinishedALaterOperation) {
  Set(0, 3, 3, -1);
  Set(1, 1, 1, -1);
  Set(2, 2, 1, 1);
  Set(3, 3, 3, -1);
  const Verdict verdict = Explain();
  EXPECT_THAT(verdict.culprits, ElementsAre(1));
  EXPECT_THAT(verdict.text, AllOf(HasSubstr("rank 1 (host node7, pid 101) never entered operation 2"),
                                  HasSubstr("rank 2 waits in operation 2"), HasSubstr("for rank 1")));
}

TEST_F(VerdictTest, RanksInTwoOperations) {
  Set(0, 5, 4, 1);
  Set(1, 4, 3, 3);
  Set(2, 4, 4, -1);
  Set(3, 4, 3, -1);
  const Verdict verdict = Explain();
  EXPECT_THAT(verdict.culprits, ElementsAre(3));
  EXPECT_THAT(verdict.text, AllOf(HasSubstr("rank 3 (host node7, pid 103) is still computing in operation 4"),
                                  HasSubstr("rank 0 waits in operation 5"), HasSubstr("rank 1 waits in operation 4")));
}

TEST_F(VerdictTest, RanksThatDiedOrAreStopped) {
  for (int rank = 0; rank < 4; ++rank) Set(rank, 9, 8, (rank + 1) % 4);
  states_[1] = ProcessState::kGone;
  states_[2] = ProcessState::kStopped;
  const Verdict verdict = Explain();
  EXPECT_THAT(verdict.culprits, ElementsAre(1, 2));
  EXPECT_THAT(verdict.text, AllOf(HasSubstr("rank 1 (host node7, pid 101) has died in operation 9 (all_reduce"),
                                  HasSubstr("rank 2 (host node7, pid 102) is stopped")));
}

TEST_F(VerdictTest, ARankThatIsStoppedBetweenOperations) {
  for (int rank = 0; rank < 4; ++rank) Set(rank, 2, 2, -1);
  control_->rank(1).left.store(1);
  states_[1] = ProcessState::kGone;
  states_[3] = ProcessState::kStopped;
  const Verdict verdict = Explain();
  EXPECT_THAT(verdict.culprits, ElementsAre(3));
  EXPECT_EQ(verdict.text, "rank 3 (host node7, pid 103) is stopped by a signal or a debugger after operation 2.");
}

TEST_F(VerdictTest, ARankThatLeftInOrder) {
  for (int rank = 0; rank < 3; ++rank) Set(rank, 4, 3, 3);
  Set(3, 3, 3, -1);
  control_->rank(3).left.store(1);
  states_[3] = ProcessState::kGone;
  EXPECT_THAT(Explain().text, HasSubstr("has left the group after operation 3"));
}

TEST_F(VerdictTest, RanksThatDisagree) {
  for (int rank = 0; rank < 4; ++rank) Set(rank, 5, 4, -1, rank == 2 ? 2 : 1);
  EXPECT_THAT(Explain().text,
              HasSubstr("The ranks disagree on operation 5: ranks 0, 1 and 3 in all_reduce(sum) f32[8] over "
                        "4 ranks; rank 2 in broadcast f32[8] over 4 ranks"));
}

// Rank 2 has left out an operation with messages and waits in mapped memory. The others wait for its messages, and rank
// 1 has already entered one more operation.
TEST_F(VerdictTest, RanksThatWaitInMemoryAndForMessages) {
  for (int rank = 0; rank < 4; ++rank) Set(rank, 5, 5, 2);
  SetMessages(0, 8, 7, 5);
  SetMessages(1, 9, 8, 5);
  SetMessages(3, 8, 7, 5);
  Set(2, 6, 5, 0);
  SetMessages(2, 7, 7, 5);
  const Verdict verdict = Explain();
  EXPECT_EQ(verdict.ranks[1].entered, 14u);
  EXPECT_EQ(verdict.ranks[1].finished, 13u);
  EXPECT_THAT(
      verdict.text,
      AllOf(HasSubstr("The ranks disagree on the order of operations: rank 2 in all_reduce(sum) f32[8] over 4 ranks; "
                      "ranks 0, 1 and 3 in broadcast f32[8] over 4 ranks"),
            HasSubstr("rank 2 waits in operation 13 (all_reduce(sum) f32[8] over 4 ranks) at step 5 for rank "
                      "0"),
            HasSubstr("rank 1 waits in operation 14 (broadcast f32[8] over 4 ranks) at step 5 for rank 2")));
}

// Rank 1 has sent a broadcast, for which it does not wait, instead of the first of two equal operations.
TEST_F(VerdictTest, TheOperationsThatDifferAreNamedIfTheLastOnesAreEqual) {
  for (int rank = 0; rank < 4; ++rank) Set(rank, 2, 1, 1);
  Set(1, 1, 0, 0);
  control_->rank(1).lines[0].sequence.store(0);
  SetMessages(1, 1, 1, 0);
  EXPECT_THAT(Explain().text,
              HasSubstr("The ranks disagree on the order of operations: ranks 0, 2 and 3 in all_reduce(sum) f32[8] "
                        "over 4 ranks; rank 1 in broadcast f32[8] over 4 ranks"));
}

// After an error of its messages, rank 1 waits in mapped memory for the others, which have not noticed the error.
TEST_F(VerdictTest, RanksThatHaveNotNoticedAnErrorOfMessagesDoNotDisagree) {
  for (int rank = 0; rank < 4; ++rank) {
    Set(rank, 5, 5, -1);
    SetMessages(rank, 8, 7, 5);
  }
  Set(1, 6, 5, 0);
  SetMessages(1, 7, 6, 5);
  EXPECT_THAT(Explain().text, HasSubstr("disagree"));
  control_->rank(1).messages.failed.store(1 + 6);
  EXPECT_THAT(Explain().text, HasSubstr("disagree")) << "the error came after operation 6 on mapped memory was entered";
  control_->rank(1).messages.failed.store(1 + 5);
  EXPECT_THAT(Explain().text, Not(HasSubstr("disagree")));
}

// The process of rank 1 has ended, and its id is now that of another process.
TEST_F(VerdictTest, AProcessIdThatIsUsedAgainIsNotTheRank) {
  for (int rank = 0; rank < 4; ++rank) {
    control_->rank(rank).SetProcess();
    Set(rank, rank == 1 ? 2 : 3, 2, rank == 1 ? -1 : 1);
  }
  EXPECT_EQ(ExplainGroup(*control_).ranks[1].process, ProcessState::kRunning);
  control_->rank(1).start_ticks -= 1;
  const Verdict verdict = ExplainGroup(*control_);
  EXPECT_THAT(verdict.culprits, ElementsAre(1));
  EXPECT_THAT(verdict.text, HasSubstr("has died after operation 2"));
}

TEST(ControlFile, RefusesOtherFiles) {
  const TestFolder folder;
  const std::string path = folder.path() + "/other";
  for (const size_t bytes : {0, 100, 4096, 200000}) {
    std::FILE* const file = std::fopen(path.c_str(), "w");
    const std::vector<char> zeros(bytes);
    std::fwrite(zeros.data(), 1, bytes, file);
    std::fclose(file);
    EXPECT_TRUE(absl::IsInvalidArgument(ControlFile::Open(path).status()));
  }
  std::filesystem::remove(path);
  EXPECT_TRUE(absl::IsNotFound(ControlFile::Open(path).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ControlFile::Create(path, 65).status()));
}

// The ranks of another version choose other plans. Their files have the same layout, so `xlad comm why` reads them.
TEST(ControlFile, AFileOfAnotherVersionIsOnlyRead) {
  const TestFolder folder;
  const std::string path = folder.path() + "/older";
  const auto control = ControlFile::Create(path, 2);
  ASSERT_TRUE(control.ok()) << control.status();
  const auto open = [&](int change, bool writable) {
    (*control)->head().version += change;
    return ControlFile::Open(path, writable).status();
  };
  EXPECT_TRUE(open(0, /*writable=*/true).ok());
  EXPECT_TRUE(open(-1, /*writable=*/false).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(open(0, /*writable=*/true)));
  EXPECT_TRUE(absl::IsInvalidArgument(open(-3, /*writable=*/false))) << "version 1 had another layout";
  EXPECT_TRUE(absl::IsInvalidArgument(open(5, /*writable=*/false)));
}

TEST(ControlFile, IsRemovedIfItCannotHaveItsSize) {
  const TestFolder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = ControlFile::Create(folder.path() + "/control", 2).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, old);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ftruncate"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ControlFile, FewFilesOfEndedGroupsAreKept) {
  const TestFolder folder;
  const char* const before = std::getenv("XLAD_COMM_DIR");
  const std::string folder_of_tests = before == nullptr ? "" : before;
  setenv("XLAD_COMM_DIR", folder.path().c_str(), 1);
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  ASSERT_EQ(waitpid(ended, nullptr, 0), ended);
  const auto make = [&](const std::string& name, pid_t pid, bool is_elsewhere = false) {
    const auto control = ControlFile::Create(absl::StrCat(folder.path(), "/", name), 2);
    ASSERT_TRUE(control.ok()) << control.status();
    (*control)->rank(1).SetProcess();
    (*control)->rank(1).pid = pid;
    if (is_elsewhere) (*control)->rank(1).host[0] ^= 1;
  };
  make("runs", getpid());
  make("forms", 0);
  make("elsewhere", ended, true);
  for (int i = 0; i < 20; ++i) make(absl::StrCat("ended-", i), ended);
  const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap({});
  Rendezvous rendezvous({0, 1, 0, 1000, "ranks"}, bootstrap.get(), &RealClock());
  const auto control = ShareControlFile("new", 0, 1, &rendezvous);
  setenv("XLAD_COMM_DIR", folder_of_tests.c_str(), 1);
  ASSERT_TRUE(control.ok()) << control.status();
  const std::vector<std::string> names = *RealFileSystem().List(folder.path());
  EXPECT_EQ(names.size(), 16u + 4u);
  for (const char* name : {"runs", "forms", "elsewhere"}) {
    EXPECT_TRUE(std::count(names.begin(), names.end(), name)) << name;
  }
}

}  // namespace
}  // namespace xlad::collectives
