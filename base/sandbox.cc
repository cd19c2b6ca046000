#include "base/sandbox.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

namespace xlad {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

// System calls that fail. Reading and writing open descriptors, mapping memory and starting threads are still allowed.
// io_uring is forbidden because it can do what some of the other calls do.
constexpr int kForbidden[] = {
    SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_sendto, SYS_sendmsg,
    SYS_sendmmsg, SYS_execve, SYS_execveat, SYS_kill, SYS_tkill, SYS_pidfd_open, SYS_pidfd_send_signal,
    SYS_pidfd_getfd, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_bpf, SYS_perf_event_open,
    SYS_userfaultfd, SYS_io_uring_setup, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns,
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_swapon, SYS_swapoff,
    SYS_keyctl, SYS_add_key, SYS_request_key, SYS_shmget, SYS_msgget, SYS_semget, SYS_memfd_create, SYS_setuid,
    SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_settimeofday, SYS_clock_settime,
    SYS_prlimit64,
};

absl::Status ForbidCalls() {
  const auto load = [](size_t at) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(at));
  };
  const auto give = [](uint32_t verdict) { return sock_filter BPF_STMT(BPF_RET | BPF_K, verdict); };
  // Jumps over `skip` instructions if the comparison holds.
  const auto jump = [](int comparison, uint32_t value, uint8_t skip) {
    return sock_filter BPF_JUMP(static_cast<uint16_t>(BPF_JMP | comparison | BPF_K), value, skip, 0);
  };
  constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
  constexpr uint32_t kOtherAbi = 0x40000000;  // Calls of the x32 ABI have this bit.
  std::vector<sock_filter> filter = {load(offsetof(seccomp_data, arch)), jump(BPF_JEQ, kArchitecture, 1),
                                     give(SECCOMP_RET_KILL_PROCESS), load(offsetof(seccomp_data, nr))};
  constexpr uint8_t kCalls = std::size(kForbidden);
  filter.push_back(jump(BPF_JGE, kOtherAbi, kCalls + 1));
  for (uint8_t i = 0; i < kCalls; ++i) {
    filter.push_back(jump(BPF_JEQ, static_cast<uint32_t>(kForbidden[i]), kCalls - i));
  }
  filter.push_back(give(SECCOMP_RET_ALLOW));
  filter.push_back(give(kRefuse));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("seccomp: ", std::strerror(errno)));
}

absl::Status ForbidFiles() {
  const auto failure = [] { return absl::UnimplementedError(absl::StrCat("Landlock: ", std::strerror(errno))); };
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return failure();
  landlock_ruleset_attr all{};
  all.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;  // All rights of version 1.
  constexpr uint64_t kRefer = 1 << 13, kTruncate = 1 << 14;        // Versions 2 and 3 added these.
  if (version >= 2) all.handled_access_fs |= kRefer;
  if (version >= 3) all.handled_access_fs |= kTruncate;
  const long rules = syscall(SYS_landlock_create_ruleset, &all, sizeof all.handled_access_fs, 0);
  if (rules < 0) return failure();
  const long result = syscall(SYS_landlock_restrict_self, rules, 0);  // No rule allows anything.
  const absl::Status status = result == 0 ? absl::OkStatus() : failure();
  close(static_cast<int>(rules));
  return status;
}

}  // namespace

absl::Status EnterSandbox() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return absl::UnimplementedError(absl::StrCat("no_new_privs: ", std::strerror(errno)));
  }
  const absl::Status files = ForbidFiles();
  const absl::Status calls = ForbidCalls();
  if (files.ok() || calls.ok()) return files.ok() ? calls : files;
  return absl::UnimplementedError(absl::StrCat(files.message(), "; ", calls.message()));
}

}  // namespace xlad
