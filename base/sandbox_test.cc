// Each test runs in a process of its own, because a sandbox cannot be left.
#include "base/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <vector>

namespace xlad {
namespace {

// Ends this process with code 0 if `attempt`, in the sandbox, returns an error of one of these numbers.
template <typename Attempt>
[[noreturn]] void ExpectRefused(const Attempt& attempt) {
  if (!EnterSandbox().ok()) _exit(10);
  errno = 0;
  if (attempt() >= 0) _exit(11);
  _exit(errno == EPERM || errno == EACCES ? 0 : 12);
}

void ExpectExit(const std::function<int()>& attempt) {
  EXPECT_EXIT(ExpectRefused(attempt), testing::ExitedWithCode(0), "");
}

TEST(Sandbox, FilesCannotBeOpenedOrChanged) {
  ExpectExit([] { return open("/etc/passwd", O_RDONLY); });
  ExpectExit([] { return open("/proc/self/maps", O_RDONLY); });
  ExpectExit([] { return open("/tmp/xlad-sandbox-test", O_WRONLY | O_CREAT, 0600); });
  ExpectExit([] { return mkdir("/tmp/xlad-sandbox-test", 0700); });
  ExpectExit([] { return unlink("/etc/passwd"); });
}

TEST(Sandbox, NoNetworkNoProgramsNoOtherProcesses) {
  ExpectExit([] { return socket(AF_INET, SOCK_STREAM, 0); });
  ExpectExit([] { return socket(AF_UNIX, SOCK_STREAM, 0); });
  ExpectExit([] {
    char* const argv[] = {nullptr};
    return execv("/bin/true", argv);
  });
  ExpectExit([] { return kill(getppid(), SIGKILL); });
}

TEST(Sandbox, ComputationContinues) {
  const auto work = [] {
    if (!EnterSandbox().ok()) _exit(10);
    std::vector<std::unique_ptr<std::vector<int>>> blocks(64);
    std::vector<std::thread> threads;
    for (auto& block : blocks) {
      threads.emplace_back([&block] { block = std::make_unique<std::vector<int>>(1 << 18, 7); });
    }
    for (std::thread& thread : threads) thread.join();
    const std::string text = "said on an open descriptor";
    _exit(write(STDERR_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 11);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(0), "said on an open descriptor");
}

}  // namespace
}  // namespace xlad
