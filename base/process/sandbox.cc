#include "base/process/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <vector>

namespace xlad {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

#ifndef SYS_process_madvise
#define SYS_process_madvise 440  // Added in Linux 5.10. x86-64 and ARM64 have the same number.
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452  // Added in Linux 6.6. x86-64 and ARM64 have the same number.
#endif

// The system calls that are forbidden. Reading and writing open descriptors, mapping memory and starting threads are
// still allowed. io_uring is forbidden because it can replace several of the other calls. ioctl and some commands of
// fcntl (see ForbidCalls) are forbidden because they can make the kernel send signals to other processes.
constexpr int kForbidden[] = {
    // Calls for the network, programs and other processes.
    SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_sendto, SYS_sendmsg,
    SYS_sendmmsg, SYS_execve, SYS_execveat, SYS_kill, SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
    SYS_pidfd_open, SYS_pidfd_send_signal, SYS_pidfd_getfd, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
    SYS_process_madvise, SYS_kcmp, SYS_migrate_pages, SYS_move_pages, SYS_prlimit64, SYS_setpriority,
    SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr, SYS_ioprio_set, SYS_ioctl,
    // Calls that change properties of files, which Landlock does not restrict.
    SYS_fchmod, SYS_fchmodat, SYS_fchmodat2, SYS_fchown, SYS_fchownat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr,
    SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_utimensat, SYS_truncate, SYS_open_by_handle_at,
    // Calls that change the system, or memory that other processes can map.
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_fanotify_init, SYS_mount, SYS_umount2,
    SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns, SYS_init_module, SYS_finit_module, SYS_delete_module,
    SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_acct, SYS_syslog, SYS_sethostname,
    SYS_setdomainname, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_shmget, SYS_shmat, SYS_shmctl, SYS_msgget,
    SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl, SYS_mq_open, SYS_mq_unlink,
    SYS_memfd_create, SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups,
    SYS_setfsuid, SYS_setfsgid, SYS_capset,
    SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex,
#if defined(__x86_64__)  // Older forms of the calls above.
    SYS_fork, SYS_vfork, SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat,
#endif
};

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kUnknown = SECCOMP_RET_ERRNO | ENOSYS;

// A BPF program that the kernel runs for each system call (seccomp(2)). It allows every call that no rule refuses.
class CallFilter {
 public:
  CallFilter() {
    constexpr uint32_t kOtherAbi = 0x40000000;  // Calls of the x32 ABI have this bit.
    Load(offsetof(seccomp_data, arch));
    Unless(BPF_JEQ, kArchitecture, SECCOMP_RET_KILL_PROCESS);
    Load(offsetof(seccomp_data, nr));
    If(BPF_JGE, kOtherAbi, kRefuse);
  }

  // Makes the call fail with the error of `verdict`.
  void Forbid(int call, uint32_t verdict = kRefuse) { If(BPF_JEQ, static_cast<uint32_t>(call), verdict); }

  // Refuses the call unless its argument satisfies the comparison with `value`. Only the low 32 bits are compared.
  void AllowOnlyIf(int call, int argument, int comparison, uint32_t value) {
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0, 4);
    // The low half of the argument on little-endian machines.
    Load(offsetof(seccomp_data, args) + sizeof(uint64_t) * argument);
    Unless(comparison, value, kRefuse);
    Give(SECCOMP_RET_ALLOW);
  }

  // Refuses the call if its argument is one of these values.
  void ForbidIf(int call, int argument, const std::vector<uint32_t>& values) {
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0, static_cast<uint8_t>(2 * values.size() + 2));
    Load(offsetof(seccomp_data, args) + sizeof(uint64_t) * argument);
    for (const uint32_t value : values) If(BPF_JEQ, value, kRefuse);
    Give(SECCOMP_RET_ALLOW);
  }

  absl::Status Apply() {
    Give(SECCOMP_RET_ALLOW);
    const sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0) {
      return absl::OkStatus();
    }
    return absl::UnimplementedError(absl::StrCat("seccomp: ", std::strerror(errno)));
  }

 private:
  void Load(size_t at) { code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(at))); }
  void Give(uint32_t verdict) { code_.push_back(BPF_STMT(BPF_RET | BPF_K, verdict)); }
  // Skips `then` instructions if the comparison with the loaded word holds, and `otherwise` if it does not.
  void Jump(int comparison, uint32_t value, uint8_t then, uint8_t otherwise) {
    code_.push_back(BPF_JUMP(static_cast<uint16_t>(BPF_JMP | comparison | BPF_K), value, then, otherwise));
  }
  void If(int comparison, uint32_t value, uint32_t verdict) {
    Jump(comparison, value, 0, 1);
    Give(verdict);
  }
  void Unless(int comparison, uint32_t value, uint32_t verdict) {
    Jump(comparison, value, 1, 0);
    Give(verdict);
  }

  std::vector<sock_filter> code_;
};

absl::Status ForbidCalls() {
  CallFilter filter;
  for (const int call : kForbidden) filter.Forbid(call);
  // Threads may be started, but not processes. The kernel refuses a new user namespace for a thread, so an unprivileged
  // process cannot create any namespace with clone. A filter cannot read the arguments of clone3, because they are in
  // memory. If clone3 fails with ENOSYS, the C library uses clone.
  filter.AllowOnlyIf(SYS_clone, 0, BPF_JSET, CLONE_THREAD);
  filter.Forbid(SYS_clone3, kUnknown);
  // Signals may be sent only to threads of this process. abort() needs this.
  filter.AllowOnlyIf(SYS_tgkill, 0, BPF_JEQ, static_cast<uint32_t>(getpid()));
  // A thread may set only its own cores.
  filter.AllowOnlyIf(SYS_sched_setaffinity, 0, BPF_JEQ, 0);
  filter.ForbidIf(SYS_fcntl, 1, {F_SETOWN, F_SETOWN_EX, F_SETSIG, F_NOTIFY});
  return filter.Apply();
}

constexpr int64_t kMaxThreadEndMs = 2000;  // How long EnterSandbox waits for the end of other threads.

// Returns the number of threads of this process, or 1 if the kernel does not report it. Also returns 1 under
// ThreadSanitizer, which always runs a thread of its own.
int64_t CountThreads() {
#if __has_feature(thread_sanitizer)
  return 1;
#endif
  namespace fs = std::filesystem;
  std::error_code error;
  int64_t threads = 0;
  for (fs::directory_iterator at("/proc/self/task", error), end; !error && at != end; at.increment(error)) ++threads;
  return std::max<int64_t>(threads, 1);
}

// Adds a rule that files below `folder` may be read. If the rule cannot be added, they cannot be read.
void AllowReading(int rules, const std::string& folder) {
  landlock_path_beneath_attr below{};
  below.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE;
  below.parent_fd = open(folder.c_str(), O_PATH | O_CLOEXEC);
  if (below.parent_fd < 0) return;
  syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &below, 0);
  close(below.parent_fd);
}

// Forbids all access to files, except that files below `readable_folder` may be read if it is not empty.
absl::Status ForbidFiles(const std::string& readable_folder) {
  const auto failure = [] { return absl::UnimplementedError(absl::StrCat("Landlock: ", std::strerror(errno))); };
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return failure();
  landlock_ruleset_attr all{};
  all.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;  // All rights of version 1 of Landlock.
  constexpr uint64_t kRefer = 1 << 13, kTruncate = 1 << 14;        // The rights that versions 2 and 3 added.
  if (version >= 2) all.handled_access_fs |= kRefer;
  if (version >= 3) all.handled_access_fs |= kTruncate;
  const long rules = syscall(SYS_landlock_create_ruleset, &all, sizeof all.handled_access_fs, 0);
  if (rules < 0) return failure();
  if (!readable_folder.empty()) AllowReading(static_cast<int>(rules), readable_folder);
  const long result = syscall(SYS_landlock_restrict_self, rules, 0);
  const absl::Status status = result == 0 ? absl::OkStatus() : failure();
  close(static_cast<int>(rules));
  return status;
}

}  // namespace

absl::Status EnterSandbox(const std::string& readable_folder) {
  // The kernel removes a thread a little later than pthread_join returns.
  for (int64_t ms = 0; ms < kMaxThreadEndMs && CountThreads() > 1; ++ms) usleep(1000);
  if (const int64_t threads = CountThreads(); threads > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("found ", threads, " threads, expected one: Landlock would not restrict the others"));
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return absl::UnimplementedError(absl::StrCat("no_new_privs: ", std::strerror(errno)));
  }
  const absl::Status files = ForbidFiles(readable_folder);
  const absl::Status calls = ForbidCalls();
  if (files.ok() || calls.ok()) return files.ok() ? calls : files;
  return absl::UnimplementedError(absl::StrCat(files.message(), "; ", calls.message()));
}

}  // namespace xlad
