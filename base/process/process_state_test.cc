#include "base/process/process_state.h"

#include <gtest/gtest.h>
#include <signal.h>
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

}  // namespace
}  // namespace xlad
