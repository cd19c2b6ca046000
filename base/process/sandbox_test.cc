// Each attempt runs in its own process, because a process cannot leave the sandbox.
#include "base/process/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/process/spawn.h"
#include "base/testing/test_folder.h"

namespace xlad {
namespace {

// Returns what the kernel or the container lacks for the sandbox, or an empty text if it lacks nothing.
std::string WhatIsMissing() {
  Pipe pipe = *Pipe::Make();
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status status = EnterSandbox();
    const absl::string_view missing = absl::IsUnimplemented(status) ? status.message() : "";
    _exit(write(pipe.write_end.get(), missing.data(), missing.size()) == std::ssize(missing) ? 0 : 1);
  }
  pipe.write_end.Close();
  std::string text;
  char c = 0;
  while (read(pipe.read_end.get(), &c, 1) == 1) text += c;
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  return text;
}

class Sandbox : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string missing = WhatIsMissing();
    if (!missing.empty()) GTEST_SKIP() << "the sandbox is not supported here: " << missing;
  }
};

// Ends this process with code 0 if `attempt` fails in the sandbox with EPERM or EACCES.
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

TEST_F(Sandbox, FilesCannotBeOpenedOrChanged) {
  ExpectExit([] { return open("/etc/passwd", O_RDONLY); });
  ExpectExit([] { return open("/proc/self/maps", O_RDONLY); });
  ExpectExit([] { return open("/tmp/xlad-sandbox-test", O_WRONLY | O_CREAT, 0600); });
  ExpectExit([] { return mkdir("/tmp/xlad-sandbox-test", 0700); });
  const TestFolder folder;
  const std::string own = JoinPath(folder.path(), "own");
  const int file = open(own.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  close(file);
  ExpectExit([&] { return unlink(own.c_str()); });
  EXPECT_EQ(unlink(own.c_str()), 0);
}

TEST_F(Sandbox, FilesOfTheReadableFolderCanOnlyBeRead) {
  const TestFolder own;
  const std::string folder = JoinPath(own.path(), "readable");
  const std::string inside = folder + "/inner/file", outside = JoinPath(own.path(), "outside");
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(mkdir((folder + "/inner").c_str(), 0700), 0);
  for (const std::string& path : {inside, outside}) close(open(path.c_str(), O_WRONLY | O_CREAT, 0600));
  const auto work = [&] {
    if (!EnterSandbox(folder).ok()) _exit(10);
    if (open(inside.c_str(), O_RDONLY) < 0) _exit(11);
    if (open(inside.c_str(), O_WRONLY) >= 0 || open(inside.c_str(), O_RDWR | O_TRUNC) >= 0) _exit(12);
    if (open(outside.c_str(), O_RDONLY) >= 0 || open((folder + "/../outside").c_str(), O_RDONLY) >= 0) _exit(13);
    if (open(folder.c_str(), O_RDONLY | O_DIRECTORY) >= 0) _exit(14);
    if (open((folder + "/new").c_str(), O_WRONLY | O_CREAT, 0600) >= 0 || unlink(inside.c_str()) == 0) _exit(15);
    _exit(0);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(0), "");
  // If there is no such folder, nothing can be read.
  const auto missing = [&] {
    if (!EnterSandbox(folder + "-missing").ok()) _exit(10);
    _exit(open(inside.c_str(), O_RDONLY) >= 0 ? 11 : 0);
  };
  EXPECT_EXIT(missing(), testing::ExitedWithCode(0), "");
}

TEST_F(Sandbox, SocketsProgramsAndKillAreRefused) {
  ExpectExit([] { return socket(AF_INET, SOCK_STREAM, 0); });
  ExpectExit([] { return socket(AF_UNIX, SOCK_STREAM, 0); });
  ExpectExit([] {
    char* const argv[] = {nullptr};
    return execv("/bin/true", argv);
  });
  ExpectExit([] { return kill(getppid(), SIGKILL); });
}

// Calls by which a process could affect others even if kill() is refused.
TEST_F(Sandbox, OtherProcessesGetNoSignalsOrPriorities) {
  ExpectExit([] { return static_cast<int>(syscall(SYS_tgkill, getppid(), getppid(), SIGKILL)); });
  ExpectExit([] { return static_cast<int>(syscall(SYS_tkill, getppid(), SIGKILL)); });
  ExpectExit([] { return static_cast<int>(syscall(SYS_rt_sigqueueinfo, getppid(), SIGKILL, nullptr)); });
  ExpectExit([] { return fcntl(STDERR_FILENO, F_SETOWN, getppid()); });
  ExpectExit([] { return fcntl(STDERR_FILENO, F_SETSIG, SIGKILL); });
  ExpectExit([] { return setpriority(PRIO_PROCESS, static_cast<id_t>(getppid()), 10); });
}

// Outside of the sandbox, each of these calls succeeds.
TEST_F(Sandbox, MemoryQueuesAndSemaphoresOfOtherProcessesCannotBeUsed) {
  const int memory = shmget(IPC_PRIVATE, 4096, 0600), queue = msgget(IPC_PRIVATE, 0600),
            semaphore = semget(IPC_PRIVATE, 1, 0600);
  if (memory < 0 && errno == ENOSYS) GTEST_SKIP() << "this kernel has no memory, queues and semaphores of System V";
  ASSERT_TRUE(memory >= 0 && queue >= 0 && semaphore >= 0) << std::strerror(errno);
  struct {
    long type = 1;
    char text = 'x';
  } message;
  ASSERT_EQ(msgsnd(queue, &message, 1, IPC_NOWAIT), 0);
  sembuf raise{0, 1, IPC_NOWAIT};
  ExpectExit([&] { return shmat(memory, nullptr, 0) == reinterpret_cast<void*>(-1) ? -1 : 0; });
  ExpectExit([&] { return shmctl(memory, IPC_RMID, nullptr); });
  ExpectExit([&] { return msgsnd(queue, &message, 1, IPC_NOWAIT); });
  ExpectExit([&] { return static_cast<int>(msgrcv(queue, &message, 1, 0, IPC_NOWAIT)); });
  ExpectExit([&] { return msgctl(queue, IPC_RMID, nullptr); });
  ExpectExit([&] { return semop(semaphore, &raise, 1); });
  ExpectExit([&] { return semtimedop(semaphore, &raise, 1, nullptr); });
  ExpectExit([&] { return semctl(semaphore, 0, IPC_RMID); });
  EXPECT_EQ(shmctl(memory, IPC_RMID, nullptr), 0);
  EXPECT_EQ(msgctl(queue, IPC_RMID, nullptr), 0);
  EXPECT_EQ(semctl(semaphore, 0, IPC_RMID), 0);
}

TEST_F(Sandbox, OtherProcessesKeepTheirCoresAndThisProcessItsUser) {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  ExpectExit([&] { return sched_setaffinity(getppid(), sizeof cores, &cores); });
  ExpectExit([] { return setfsuid(getuid()); });
  ExpectExit([] { return setfsgid(getgid()); });
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct rights[2];
  ASSERT_EQ(syscall(SYS_capget, &header, rights), 0);
  ExpectExit([&] { return static_cast<int>(syscall(SYS_capset, &header, rights)); });
  const int parent = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  ASSERT_GE(parent, 0);
  iovec page{reinterpret_cast<void*>(0x1000), 0};
  ExpectExit([&] { return static_cast<int>(syscall(SYS_process_madvise, parent, &page, 1, MADV_COLD, 0)); });
  ExpectExit([] { return static_cast<int>(syscall(SYS_kexec_file_load, -1, -1, 0, nullptr, 0)); });
  close(parent);
}

TEST_F(Sandbox, NewProcessesAndNamespacesAreRefused) {
  ExpectExit([] { return static_cast<int>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr)); });
  ExpectExit([] {
    return static_cast<int>(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  });
  ExpectExit([] { return unshare(CLONE_NEWUSER); });
  ExpectExit([] { return fork(); });
}

// The calls are made on a file that this process may change outside of the sandbox.
TEST_F(Sandbox, PropertiesOfFilesCannotBeChanged) {
  const TestFolder folder;
  const std::string path = JoinPath(folder.path(), "properties");
  const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ExpectExit([&] { return chmod(path.c_str(), 0666); });
  ExpectExit([&] { return fchmod(file, 0666); });
  ExpectExit([&] { return fchmodat(AT_FDCWD, path.c_str(), 0666, 0); });
  ExpectExit([&] { return chown(path.c_str(), getuid(), getgid()); });
  ExpectExit([&] { return fchown(file, getuid(), getgid()); });
  ExpectExit([&] { return setxattr(path.c_str(), "user.x", "1", 1, 0); });
  ExpectExit([&] { return utimensat(AT_FDCWD, path.c_str(), nullptr, 0); });
  ExpectExit([&] { return truncate(path.c_str(), 0); });
  struct stat after{};
  ASSERT_EQ(stat(path.c_str(), &after), 0);
  EXPECT_EQ(after.st_mode & 0777, 0600u);
  close(file);
}

TEST_F(Sandbox, AbortStillEndsTheProcess) {
  const auto work = [] {
    if (!EnterSandbox().ok()) _exit(10);
    std::abort();
  };
  EXPECT_EXIT(work(), testing::KilledBySignal(SIGABRT), "");
}

TEST_F(Sandbox, IsRefusedIfThereAreOtherThreads) {
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "ThreadSanitizer has a thread of its own, so threads are not counted";
#endif
  const auto work = [] {
    std::atomic<bool> ends = false;
    std::thread other([&] { ends.wait(false); });
    const absl::Status status = EnterSandbox();
    const bool is_open = socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
    ends = true;
    ends.notify_all();
    other.join();
    _exit(absl::IsFailedPrecondition(status) && is_open ? 0 : 11);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(0), "");
}

TEST_F(Sandbox, ComputationContinues) {
  const auto work = [] {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) _exit(12);
    if (!EnterSandbox().ok()) _exit(10);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0) _exit(13);
    std::vector<std::unique_ptr<std::vector<int>>> blocks(64);
    std::vector<std::thread> threads;
    for (auto& block : blocks) {
      threads.emplace_back([&block] { block = std::make_unique<std::vector<int>>(1 << 18, 7); });
    }
    for (std::thread& thread : threads) thread.join();
    const std::string text = "written to an open descriptor";
    _exit(write(STDERR_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 11);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(0), "written to an open descriptor");
}

}  // namespace
}  // namespace xlad
