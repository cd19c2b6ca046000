// Builds in the idle process and in new processes. All processes run a script instead of xlad.
#include "service/build_queue/build_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/testing/no_free_descriptors.h"
#include "base/testing/test_folder.h"

namespace xlad::service {
namespace {

class BuildPoolTest : public ::testing::Test {
 protected:
  // A pool whose processes run this script. Without `quiet_ms`, the next idle process is started at once.
  std::unique_ptr<BuildPool> MakePool(const std::string& script, bool keep_idle = true, int64_t quiet_ms = 0) {
    const std::string path = JoinPath(folder_.path(), absl::StrCat("builder", ++pools_));
    EXPECT_TRUE(RealFileSystem().WriteAtomically(path, absl::StrCat("#!/bin/sh\n", script, "\n")).ok());
    EXPECT_EQ(chmod(path.c_str(), 0700), 0);
    return std::make_unique<BuildPool>(
        BuildPoolOptions{.program_path = path, .keep_idle = keep_idle, .quiet_ms = quiet_ms});
  }
  static std::string OutputOf(BuildPool* pool, const ChildLimits& limits = {}) {
    const auto result = pool->Run("request\n", limits);
    return result.ok() ? absl::StrCat(result->output, result->signal == 0 ? "" : "died") : result.status().ToString();
  }

  const TestFolder folder_;
  int pools_ = 0;
};

// Prints the process id, the request, the second argument and the limits.
constexpr char kTell[] = "read request; echo $$ $request $2; ulimit -v; ulimit -t; nice";

TEST_F(BuildPoolTest, EveryProcessServesOneBuild) {
  const auto pool = MakePool(kTell);
  for (int i = 0; i < 3; ++i) {
    const pid_t idle = pool->WaitForIdle();
    EXPECT_TRUE(absl::StartsWith(OutputOf(pool.get()), absl::StrCat(idle, " request idle\n"))) << i;
    EXPECT_NE(pool->WaitForIdle(), idle);
  }
}

TEST_F(BuildPoolTest, IdleProcessesGetTheLimitsOfTheirBuilds) {
  const auto idle = MakePool(kTell), usual = MakePool(kTell, /*keep_idle=*/false);
  const auto limits_of = [](const std::string& output) { return output.substr(output.find('\n')); };
  for (const ChildLimits& limits : {ChildLimits{}, ChildLimits{.memory_bytes = int64_t{1} << 30, .cpu_seconds = 77}}) {
    idle->WaitForIdle();
    EXPECT_EQ(limits_of(OutputOf(idle.get(), limits)), limits_of(OutputOf(usual.get(), limits)));
  }
}

TEST_F(BuildPoolTest, TheSecondBuildAndNiceBuildsRunInNewProcesses) {
  const auto pool = MakePool("read request; echo $2", true, 1 << 30);
  pool->WaitForIdle();
  EXPECT_EQ(OutputOf(pool.get(), {.nice = 1}), "\n");
  EXPECT_EQ(OutputOf(pool.get()), "idle\n");
  EXPECT_EQ(OutputOf(pool.get()), "\n") << "no other idle process has been started";
}

TEST_F(BuildPoolTest, AKilledIdleProcessIsReplacedByAnother) {
  const auto pool = MakePool(kTell);
  for (int i = 0; i < 3; ++i) {
    const pid_t idle = pool->WaitForIdle();
    ASSERT_EQ(kill(idle, SIGKILL), 0);
    siginfo_t end{};
    ASSERT_EQ(waitid(P_PID, idle, &end, WEXITED | WNOWAIT), 0);
    const std::string output = OutputOf(pool.get());
    EXPECT_TRUE(absl::StrContains(output, " request\n")) << output;
    EXPECT_FALSE(absl::StartsWith(output, absl::StrCat(idle, " "))) << output;
  }
}

// The script of idle processes ends at once.
TEST_F(BuildPoolTest, BuildsNeedNoIdleProcess) {
  const auto pool = MakePool(absl::StrCat("test -z \"$2\" || exit 1; ", kTell));
  for (int i = 0; i < 3; ++i) {
    siginfo_t end{};
    ASSERT_EQ(waitid(P_PID, pool->WaitForIdle(), &end, WEXITED | WNOWAIT), 0);
    EXPECT_TRUE(absl::StrContains(OutputOf(pool.get()), " request\n"));
  }
  BuildPool missing({.program_path = "/nowhere/xlad", .keep_idle = true, .quiet_ms = 0});
  EXPECT_EQ(missing.Run("", {})->exit_code, 127);
}

// The limit on open files leaves no descriptor for the pipes of the first process.
TEST_F(BuildPoolTest, AFailedStartIsLoggedAndRepeated) {
  const Pipe log = *Pipe::Make();
  const FileDescriptor errors(dup(STDERR_FILENO));
  dup2(log.write_end.get(), STDERR_FILENO);
  std::optional<NoFreeDescriptors> none(std::in_place);
  std::string line(4096, ' ');
  {
    BuildPool pool({.program_path = "/bin/cat", .keep_idle = true, .quiet_ms = 0, .retry_ms = 10});
    line.resize(std::max<ssize_t>(read(log.read_end.get(), line.data(), line.size()), 0));
    none.reset();
    dup2(errors.get(), STDERR_FILENO);
    EXPECT_GT(pool.WaitForIdle(), 0);
  }
  EXPECT_TRUE(absl::StrContains(line, "Too many open files")) << line;
}

TEST_F(BuildPoolTest, ABuildInAnIdleProcessCanBeCanceledAndTimesOut) {
  const auto pool = MakePool("read request; exec sleep 1000");
  CancelSignal cancel;
  cancel.Raise();
  pool->WaitForIdle();
  EXPECT_TRUE(absl::IsCancelled(pool->Run("request\n", {.cancel = &cancel}).status()));
  pool->WaitForIdle();
  EXPECT_TRUE(absl::IsDeadlineExceeded(pool->Run("request\n", {.timeout_ms = 50}).status()));
}

TEST_F(BuildPoolTest, TheIdleProcessEndsWithThePool) {
  auto pool = MakePool(kTell);
  const pid_t idle = pool->WaitForIdle();
  EXPECT_EQ(kill(idle, 0), 0);
  pool.reset();
  EXPECT_NE(kill(idle, 0), 0);
}

}  // namespace
}  // namespace xlad::service
