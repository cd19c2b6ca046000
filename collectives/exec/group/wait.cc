#include "collectives/exec/group/wait.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/process/cores.h"
#include "base/process/process_state.h"
#include "collectives/exec/short_slices.h"

namespace xlad::collectives {
namespace {

// The phases of a wait. A pause takes about 15 ns. A yield takes 0.3 us, or as long as the other processes run.
constexpr int kSpins = 4000;
constexpr int kSpinsBetweenYields = 500;
constexpr int kWaitsOnSameCore = 4;
constexpr int kFirstYields = 8;  // The first yields do not read the clock.
constexpr int kSpinsForOtherCores = 40;  // Before each of the first yields.
constexpr int64_t kYieldNsWithOwnCore = 50'000;
constexpr int64_t kYieldNsWithSharedCore = 1'000'000;
constexpr int64_t kFirstSleepNs = 2'000'000;
constexpr int64_t kMaxSleepNs = 20'000'000;

long Futex(std::atomic<uint32_t>* word, int op, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, word, op, value, timeout, nullptr, 0);
}

// Moves this thread to any other core that the process may use.
void MoveToAnotherCore(int core) {
  cpu_set_t allowed, others;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  others = allowed;
  CPU_CLR(core, &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return;
  sched_setaffinity(0, sizeof allowed, &allowed);
}

bool Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool OnlyOtherCoresAreLate(const ControlFile& control, int rank, int core) {
  const uint64_t own = EnteredOnMemory(control.rank(rank));
  for (int other = 0; other < control.ranks(); ++other) {
    const RankBlock& block = control.rank(other);
    if (block.core.load(std::memory_order_relaxed) == core && EnteredOnMemory(block) < own) return false;
  }
  return true;
}

GroupWaiter::GroupWaiter(ControlFile* control, int rank, bool exclusive)
    : control_(control), rank_(rank), exclusive_(exclusive), first_spins_(exclusive ? 200 : 0) {
  // A rank that goes to sleep announces itself and then makes all other processes of the group execute a memory
  // barrier. The others therefore need no barrier after each store. Without membarrier, Wake executes one.
  if (!Membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)) control_->head().needs_fence.store(1);
}

GroupWaiter::~GroupWaiter() {
  for (const int handle : process_handles_) {
    if (handle >= 0) close(handle);
  }
}

absl::Status GroupWaiter::WatchPeers() {
  Start();
  for (int rank = 0; rank < control_->ranks(); ++rank) {
    const RankBlock& block = control_->rank(rank);
    const pid_t pid = static_cast<pid_t>(block.pid);
    process_handles_.push_back(pid == getpid() ? -1 : static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (pid == getpid()) continue;
    if (process_handles_.back() < 0) {
      if (errno == ESRCH) return Died(rank);
      return absl::UnavailableError(absl::StrCat("cannot watch ", Describe(rank), ": ", std::strerror(errno)));
    }
    // The peer may have ended since it joined. Another process may have its id now.
    const uint64_t start_ticks = StartOfProcess(pid);
    if (start_ticks != 0 && block.start_ticks != 0 && start_ticks != block.start_ticks) return Died(rank);
  }
  return absl::OkStatus();
}

std::string GroupWaiter::Describe(int rank) const {
  const RankBlock& block = control_->rank(rank);
  return absl::StrCat("rank ", rank, " (host ", block.host, ", pid ", block.pid, ")");
}

absl::Status GroupWaiter::Died(int rank) const {
  const RankBlock& block = control_->rank(rank);
  const RankPosition position = PositionOf(block).value_or(RankPosition{EnteredOnMemory(block)});
  const uint64_t finished = block.finished.load() + block.messages.finished.load();
  std::string where = absl::StrCat("after operation ", finished);
  if (position.all() > finished) {
    where = absl::StrCat("in operation ", position.all(), " (", LastOperation(block, position), ")");
  }
  if (block.left.load() != RankBlock::kLeftInOrder) {
    return absl::UnavailableError(absl::StrCat(Describe(rank), " has died ", where));
  }
  if (block.messages.failed.load() != 0) {
    return absl::UnavailableError(absl::StrCat(Describe(rank), " has stopped after an error ", where));
  }
  return absl::UnavailableError(absl::StrCat(Describe(rank), " has left the group ", where, " and will not take part"));
}

// Returns the error for a peer that has stopped after an error while all processes are alive. If one of the last two
// operations of this rank differs from the same operation of another rank, the error names both. This rank need not
// have waited for that rank.
absl::Status GroupWaiter::Stopped(int rank) const {
  for (const int parity : {0, 1}) {
    const EntryLine& own = control_->rank(rank_).lines[parity];
    for (int other = 0; other < control_->ranks(); ++other) {
      const EntryLine& line = control_->rank(other).lines[parity];
      const uint64_t sequence = own.sequence.load();
      if (line.sequence.load() != sequence || ((line.operation ^ own.operation) >> 16) == 0) continue;
      return Disagreement(OperationText(control_->rank(rank_), own.operation), other,
                          OperationText(control_->rank(other), line.operation));
    }
  }
  for (int other = 0; other < control_->ranks(); ++other) XLAD_RETURN_IF_ERROR(CheckOrder(other));
  return absl::UnavailableError(absl::StrCat(Describe(rank), " has stopped after an error"));
}

absl::Status GroupWaiter::Disagreement(absl::string_view own, int peer, absl::string_view theirs) const {
  return absl::FailedPreconditionError(absl::StrCat("the ranks disagree: rank ", rank_, " runs ", own, ", ",
                                                    Describe(peer), " runs ", theirs,
                                                    "; all ranks must run the same operations in the same order"));
}

// A rank that waits in mapped memory may wait for a rank that waits for messages of this rank, or the other way round.
// Neither of them would see an operation that differs from its own. The order is checked after the presence of the
// rank, which may have left because of the order.
absl::Status GroupWaiter::CheckOrder(int rank) const {
  const RankBlock &self = control_->rank(rank_), &block = control_->rank(rank);
  const std::optional<RankPosition> own = PositionOf(self), theirs = PositionOf(block);
  if (!own.has_value() || !theirs.has_value() || AreInOneOrder(*own, *theirs)) return absl::OkStatus();
  return Disagreement(OperationAhead(self, *own, *theirs), rank, OperationAhead(block, *theirs, *own));
}

bool GroupWaiter::IsAlive(int rank) const {
  if (control_->rank(rank).left.load() == RankBlock::kLeftInOrder) return false;
  pollfd handle{process_handles_[rank], POLLIN, 0};
  return handle.fd < 0 || poll(&handle, 1, 0) <= 0;  // A signal may interrupt poll.
}

absl::Status GroupWaiter::CheckPeers() {
  const uint64_t current = EnteredOnMemory(control_->rank(rank_));
  for (int rank = 0; rank < std::ssize(process_handles_); ++rank) {
    if (rank == rank_) continue;
    // A peer that finished the current operation has done its part, even if its process has ended since.
    const bool has_finished = control_->rank(rank).finished.load(std::memory_order_acquire) >= current;
    const absl::Status presence = has_finished ? absl::OkStatus() : CheckPresence(rank);
    XLAD_RETURN_IF_ERROR(CheckOrder(rank));
    XLAD_RETURN_IF_ERROR(presence);
  }
  return absl::OkStatus();
}

absl::Status GroupWaiter::CheckPeer(int rank) {
  if (rank == rank_) return absl::OkStatus();
  const absl::Status presence = CheckPresence(rank);
  XLAD_RETURN_IF_ERROR(CheckOrder(rank));
  return presence;
}

// Unavailable if another rank has died, left or stopped after an error.
absl::Status GroupWaiter::CheckPresence(int rank) {
  std::atomic<int32_t>& failed = control_->head().failed_rank;
  const uint32_t left = control_->rank(rank).left.load(std::memory_order_acquire);
  if (left == RankBlock::kLeftInOrder) return Died(rank);
  if (left == RankBlock::kLeftAfterError) {
    // The peer has noticed the death of another rank, or its operation differs from that of the others.
    return failed.load() >= 0 ? Died(failed.load()) : Stopped(rank);
  }
  if (IsAlive(rank)) return absl::OkStatus();
  int none = -1;
  failed.compare_exchange_strong(none, rank);
  WakeSleepers();  // Otherwise the other ranks would notice the death only when they next check their peers.
  return Died(failed.load());
}

absl::Status GroupWaiter::WaitLong(int peer, int step, absl::FunctionRef<bool()> ready,
                                   absl::FunctionRef<absl::Status()> check) {
  RankBlock& self = control_->rank(rank_);
  // The scheduler may have put both ranks on the same core although another core is free.
  const int core = sched_getcpu();
  if (self.core.load(std::memory_order_relaxed) != core) self.core.store(core, std::memory_order_relaxed);
  const bool same_core = exclusive_ && control_->rank(peer).core.load(std::memory_order_relaxed) == core;
  waits_on_same_core_ = same_core ? waits_on_same_core_ + 1 : 0;
  if (waits_on_same_core_ >= kWaitsOnSameCore && rank_ > peer) {
    waits_on_same_core_ = 0;
    MoveToAnotherCore(core);
  }
  const bool spins = exclusive_ && !same_core;
  for (int spin = 0; spins && spin < kSpins; ++spin) {
    if (ready()) return absl::OkStatus();
    PauseCpu();
    if (spin % kSpinsBetweenYields == kSpinsBetweenYields - 1) sched_yield();
  }
  // Each yield postpones the thread's deadline in the scheduler by one time slice. With long slices, the thread would
  // run again only after all other programs on this core.
  if (!std::exchange(has_short_slices_, true)) AskForShortSlices();
  // A yield would then only switch to ranks that wait, too, which takes longer than most ranks are late.
  const int spins_before_yield = !exclusive_ && OnlyOtherCoresAreLate(*control_, rank_, core) ? kSpinsForOtherCores : 0;
  for (int yield = 0; yield < kFirstYields; ++yield) {
    for (int spin = 0; spin < spins_before_yield; ++spin) {
      if (ready()) return absl::OkStatus();
      PauseCpu();
    }
    sched_yield();
    if (ready()) return absl::OkStatus();
  }
  const int64_t end_ns = RealClock().NowNs() + (spins ? kYieldNsWithOwnCore : kYieldNsWithSharedCore);
  do {
    sched_yield();
    if (ready()) return absl::OkStatus();
  } while (RealClock().NowNs() < end_ns);
  self.step.store(static_cast<uint32_t>(step), std::memory_order_relaxed);
  self.waits_for.store(peer, std::memory_order_relaxed);
  const absl::Status status = Sleep(ready, check);
  self.waits_for.store(-1, std::memory_order_relaxed);
  return status;
}

absl::Status GroupWaiter::Sleep(absl::FunctionRef<bool()> ready, absl::FunctionRef<absl::Status()> check) {
  RankBlock& self = control_->rank(rank_);
  ControlHead& head = control_->head();
  int64_t sleep_ns = kFirstSleepNs;
  while (!ready()) {
    XLAD_RETURN_IF_ERROR(check());
    // A peer may have done its part and then ended. `ready` is therefore tested again after an error.
    const absl::Status peers = CheckPeers();
    if (!peers.ok()) return ready() ? absl::OkStatus() : peers;
    self.asleep.store(1);
    head.sleepers.fetch_add(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!needs_fence_) Membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    if (!ready()) {
      const timespec timeout{0, sleep_ns};
      Futex(&self.asleep, FUTEX_WAIT, 1, &timeout);
    }
    self.asleep.store(0);
    head.sleepers.fetch_sub(1);
    sleep_ns = std::min(2 * sleep_ns, kMaxSleepNs);
  }
  return absl::OkStatus();
}

void GroupWaiter::WakeSleepers() {
  for (int rank = 0; rank < control_->ranks(); ++rank) {
    std::atomic<uint32_t>& asleep = control_->rank(rank).asleep;
    if (asleep.load() != 0 && asleep.exchange(0) != 0) Futex(&asleep, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

}  // namespace xlad::collectives
