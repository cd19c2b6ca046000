// Each attempt runs in its own process, because a process cannot leave the sandbox.
#include "base/sandbox.h"

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
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace xlad {
namespace {

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

TEST(Sandbox, FilesCannotBeOpenedOrChanged) {
  ExpectExit([] { return open("/etc/passwd", O_RDONLY); });
  ExpectExit([] { return open("/proc/self/maps", O_RDONLY); });
  ExpectExit([] { return open("/tmp/xlad-sandbox-test", O_WRONLY | O_CREAT, 0600); });
  ExpectExit([] { return mkdir("/tmp/xlad-sandbox-test", 0700); });
  const std::string own = absl::StrCat(testing::TempDir(), "/xlad-sandbox-own-", getpid());
  const int file = open(own.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  close(file);
  ExpectExit([&] { return unlink(own.c_str()); });
  EXPECT_EQ(unlink(own.c_str()), 0);
}

TEST(Sandbox, FilesOfTheReadableFolderCanOnlyBeRead) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/xlad-sandbox-readable-", getpid());
  const std::string inside = folder + "/inner/file", outside = folder + "-file";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(mkdir((folder + "/inner").c_str(), 0700), 0);
  for (const std::string& path : {inside, outside}) close(open(path.c_str(), O_WRONLY | O_CREAT, 0600));
  const auto work = [&] {
    if (!EnterSandbox(folder).ok()) _exit(10);
    if (open(inside.c_str(), O_RDONLY) < 0) _exit(11);
    if (open(inside.c_str(), O_WRONLY) >= 0 || open(inside.c_str(), O_RDWR | O_TRUNC) >= 0) _exit(12);
    if (open(outside.c_str(), O_RDONLY) >= 0 || open((folder + "/../../etc/passwd").c_str(), O_RDONLY) >= 0) _exit(13);
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
  for (const std::string& path : {inside, outside}) unlink(path.c_str());
  rmdir((folder + "/inner").c_str());
  rmdir(folder.c_str());
}

TEST(Sandbox, SocketsProgramsAndKillAreRefused) {
  ExpectExit([] { return socket(AF_INET, SOCK_STREAM, 0); });
  ExpectExit([] { return socket(AF_UNIX, SOCK_STREAM, 0); });
  ExpectExit([] {
    char* const argv[] = {nullptr};
    return execv("/bin/true", argv);
  });
  ExpectExit([] { return kill(getppid(), SIGKILL); });
}

// Calls by which a process could affect others even if kill() is refused.
TEST(Sandbox, OtherProcessesGetNoSignalsOrPriorities) {
  ExpectExit([] { return static_cast<int>(syscall(SYS_tgkill, getppid(), getppid(), SIGKILL)); });
  ExpectExit([] { return static_cast<int>(syscall(SYS_tkill, getppid(), SIGKILL)); });
  ExpectExit([] { return static_cast<int>(syscall(SYS_rt_sigqueueinfo, getppid(), SIGKILL, nullptr)); });
  ExpectExit([] { return fcntl(STDERR_FILENO, F_SETOWN, getppid()); });
  ExpectExit([] { return fcntl(STDERR_FILENO, F_SETSIG, SIGKILL); });
  ExpectExit([] { return setpriority(PRIO_PROCESS, static_cast<id_t>(getppid()), 10); });
}

// Outside of the sandbox, each of these calls succeeds.
TEST(Sandbox, MemoryQueuesAndSemaphoresOfOtherProcessesCannotBeUsed) {
  const int memory = shmget(IPC_PRIVATE, 4096, 0600), queue = msgget(IPC_PRIVATE, 0600),
            semaphore = semget(IPC_PRIVATE, 1, 0600);
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

TEST(Sandbox, OtherProcessesKeepTheirCoresAndThisProcessItsUser) {
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

TEST(Sandbox, NewProcessesAndNamespacesAreRefused) {
  ExpectExit([] { return static_cast<int>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr)); });
  ExpectExit([] {
    return static_cast<int>(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  });
  ExpectExit([] { return unshare(CLONE_NEWUSER); });
  ExpectExit([] { return fork(); });
}

// The calls are made on a file that this process may change outside of the sandbox.
TEST(Sandbox, PropertiesOfFilesCannotBeChanged) {
  const std::string path = absl::StrCat(testing::TempDir(), "/xlad-sandbox-properties-", getpid());
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
  unlink(path.c_str());
}

TEST(Sandbox, AbortStillEndsTheProcess) {
  const auto work = [] {
    if (!EnterSandbox().ok()) _exit(10);
    std::abort();
  };
  EXPECT_EXIT(work(), testing::KilledBySignal(SIGABRT), "");
}

TEST(Sandbox, IsRefusedIfThereAreOtherThreads) {
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

TEST(Sandbox, ComputationContinues) {
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
