// A test that kinds of groups over processes share: a rank dies while the others shrink their group.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "base/clock.h"

namespace xlad::collectives {

// `join_and_fail(rank)` returns a group (absl::StatusOr<std::unique_ptr<Group>>) of two ranks after an error in which
// no rank has died. It is called for rank 0 in this process and for rank 1 in a child process. The child dies when rank
// 0 waits for it in Shrink, that is, when the folder `meeting` exists.
template <typename JoinAndFail>
void ExpectThatARankThatDiesInShrinkIsLeftOut(const std::string& meeting, const JoinAndFail& join_and_fail) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto group = join_and_fail(1);
    // The limit is reached only if the folder of the meeting has another name.
    const int64_t end_ns = RealClock().NowNs() + 20 * kNsPerSecond;
    while (group.ok() && RealClock().NowNs() < end_ns) {
      if (std::filesystem::exists(meeting)) raise(SIGKILL);
      std::this_thread::yield();
    }
    _exit(group.ok() ? 1 : 2);
  }
  const auto group = join_and_fail(0);
  ASSERT_TRUE(group.ok()) << group.status();
  const auto left = (*group)->Shrink(/*deadline_ms=*/60'000);  // It passes only if the death is not noticed.
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ((*left)->ranks(), 1);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace xlad::collectives
