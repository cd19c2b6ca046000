#include "base/process/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace xlad {
namespace {

TEST(MemoryLimit, ReadsTheLimitOfAControlGroup) {
  EXPECT_EQ(MemoryLimitOf("1073741824\n"), 1 << 30);
  EXPECT_EQ(MemoryLimitOf("0"), 0);
  for (const char* text : {"max\n", "", "-1", "a", "1 2", "99999999999999999999"}) {
    EXPECT_EQ(MemoryLimitOf(text), INT64_MAX) << text;
  }
}

// The test runs in a child process, because the limit cannot be undone.
TEST(MemoryLimit, IsNotMoreThanTheLimitOnData) {
  const int64_t here = UsableMemoryBytes();
  EXPECT_GT(here, 1 << 20);
  EXPECT_LT(here, INT64_MAX);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{rlim_t{64} << 20, rlim_t{64} << 20};
    _exit(setrlimit(RLIMIT_DATA, &limit) == 0 && UsableMemoryBytes() == 64 << 20 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace xlad
