#include "base/process/process_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace xlad {
namespace {

TEST(ProcessState, OfAProcessThatRunsIsStoppedAndHasEnded) {
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  const uint64_t start = StartOfProcess(pid);
  EXPECT_NE(start, 0u);
  EXPECT_EQ(StateOfProcess(pid, start), ProcessState::kRunning);
  EXPECT_EQ(StateOfProcess(pid, 0), ProcessState::kRunning);
  kill(pid, SIGSTOP);
  ASSERT_EQ(waitpid(pid, nullptr, WUNTRACED), pid);
  EXPECT_EQ(StateOfProcess(pid, start), ProcessState::kStopped);
  kill(pid, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);  // The process has ended, but has not been reaped.
  EXPECT_EQ(StateOfProcess(pid, start), ProcessState::kGone);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_EQ(StateOfProcess(pid, start), ProcessState::kGone);
  EXPECT_EQ(StartOfProcess(pid), 0u);
}

TEST(ProcessState, AnotherProcessWithTheSameIdIsNotTheProcess) {
  const uint64_t start = StartOfProcess(getpid());
  EXPECT_EQ(StateOfProcess(getpid(), start), ProcessState::kRunning);
  EXPECT_EQ(StateOfProcess(getpid(), start - 1), ProcessState::kGone);
}

TEST(ProcessState, AProcessCountsAsRunningIfItsStateCannotBeRead) {
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  ASSERT_EQ(waitpid(ended, nullptr, 0), ended);
  const uint64_t start = StartOfProcess(getpid());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const uint64_t unknown = StartOfProcess(getpid());
  const ProcessState own = StateOfProcess(getpid(), start), of_ended = StateOfProcess(ended, start);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(unknown, 0u);
  EXPECT_EQ(own, ProcessState::kRunning);
  EXPECT_EQ(of_ended, ProcessState::kGone);
  EXPECT_EQ(StateOfProcess(0, 0), ProcessState::kGone);
  EXPECT_EQ(StateOfProcess(-1, 0), ProcessState::kGone);
}

}  // namespace
}  // namespace xlad
