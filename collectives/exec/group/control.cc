#include "collectives/exec/group/control.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/net/network.h"
#include "base/process/process_state.h"
#include "base/rounding.h"
#include "collectives/exec/group/meeting.h"
#include "collectives/exec/group/own_folder.h"

namespace xlad::collectives {
namespace {

// All ranks of a group have this version. It changes with the layout of the file, and with the plans that the ranks
// choose (plans.h), because ranks with different plans would refuse their operations one by one.
constexpr uint32_t kVersion = 5;
constexpr uint32_t kOldestReadableVersion = 2;  // Its files have the same layout; members that it lacks are zero.
constexpr int64_t kHeadBytes = 4096;
// The most control files of ended groups that the next group leaves. Each takes up to 10 MB of memory.
constexpr size_t kMaxKeptFiles = 16;

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kBlockBytes = RoundUp(sizeof(RankBlock), kPageBytes);
// The number of cells of one flag from one rank to all others, rounded up to whole cache lines.
constexpr int64_t CellsPerRank(int ranks) { return RoundUp(ranks, 8); }

// Whether all processes of a group have ended. Without a process, the group is forming, unless the file is old. The
// processes of another host, or of a container with another host name, cannot be seen: they count as running unless the
// file is old.
bool HasEnded(const ControlFile& control, bool is_old) {
  const std::string host = HostName();
  bool has_process = is_old;
  for (int rank = 0; rank < control.ranks(); ++rank) {
    const int64_t pid = control.rank(rank).pid;
    if (pid <= 0) continue;
    if (control.rank(rank).host != host) {
      if (!is_old) return false;
      continue;
    }
    if (StateOfProcess(pid, control.rank(rank).start_ticks) != ProcessState::kGone) return false;
    has_process = true;
  }
  return has_process;
}

// Removes control files whose processes have all ended, except the newest kMaxKeptFiles that are at most a day old.
// Also removes the folders in which groups form (MeetingFolder) that are older than a day and unused.
void RemoveOldControlFiles(const std::string& folder) {
  constexpr int64_t kKeptSeconds = 24 * 3600;
  std::vector<std::pair<int64_t, std::string>> kept;  // The age of each file in nanoseconds, and its path.
  const absl::StatusOr<std::vector<std::string>> names = RealFileSystem().List(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(folder, name);
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) continue;
    const int64_t age_ns = RealClock().WallNs() - info.st_ctim.tv_sec * kNsPerSecond - info.st_ctim.tv_nsec;
    const bool is_old = age_ns >= kKeptSeconds * kNsPerSecond;
    if (S_ISDIR(info.st_mode) && is_old) MeetingFolder::RemoveIfUnused(path);
    if (!S_ISREG(info.st_mode)) continue;
    const absl::StatusOr<std::unique_ptr<ControlFile>> control = ControlFile::Open(path, /*writable=*/false);
    if (!control.ok() || !HasEnded(**control, is_old)) continue;
    if (is_old) (*control)->Unlink();
    if (!is_old) kept.emplace_back(age_ns, path);
  }
  std::sort(kept.begin(), kept.end());
  for (size_t i = kMaxKeptFiles; i < kept.size(); ++i) unlink(kept[i].second.c_str());
}

}  // namespace

int64_t ControlFile::BytesFor(int ranks) {
  const int64_t cells = kSignalFlags * ranks * CellsPerRank(ranks) * static_cast<int64_t>(sizeof(SignalCell));
  return kHeadBytes + ranks * kBlockBytes + RoundUp(cells, kPageBytes);
}

absl::Status ControlFile::Map(int file, int64_t bytes, bool writable) {
  void* address = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) return PathError("mmap", path_);
  address_ = static_cast<std::byte*>(address);
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ControlFile>> ControlFile::Create(const std::string& path, int ranks) {
  if (ranks < 1 || ranks > kMaxGroupRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("found a group of ", ranks, " ranks, expected 1 to ", kMaxGroupRanks, " on one host"));
  }
  std::unique_ptr<ControlFile> control(new ControlFile());
  control->path_ = path;
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return PathError("cannot create", path);
  const int64_t bytes = BytesFor(ranks);
  absl::Status status;
  if (ftruncate(file, bytes) != 0) status = PathError("ftruncate", path);
  if (status.ok()) status = control->Map(file, bytes, true);
  close(file);
  if (!status.ok()) control->Unlink();
  XLAD_RETURN_IF_ERROR(status);
  auto* head = new (control->address_) ControlHead();
  head->version = kVersion;
  head->ranks = ranks;
  head->bytes = bytes;
  for (int rank = 0; rank < ranks; ++rank) new (control->address_ + kHeadBytes + rank * kBlockBytes) RankBlock();
  head->magic = ControlHead::kMagic;
  return control;
}

absl::StatusOr<std::unique_ptr<ControlFile>> ControlFile::Open(const std::string& path, bool writable) {
  std::unique_ptr<ControlFile> control(new ControlFile());
  control->path_ = path;
  // Opening a FIFO without O_NONBLOCK would block.
  const int file = open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return PathError("cannot open", path);
  struct stat info {};
  absl::Status status;
  if (fstat(file, &info) != 0) status = PathError("fstat", path);
  if (status.ok() && (!S_ISREG(info.st_mode) || info.st_size < kHeadBytes)) {
    status = absl::InvalidArgumentError(
        absl::StrCat(path, ": found a file that is too short or not a regular file, expected a control file"));
  }
  if (status.ok()) status = control->Map(file, info.st_size, writable);
  close(file);
  XLAD_RETURN_IF_ERROR(status);
  const ControlHead& head = control->head();
  const uint32_t oldest = writable ? kVersion : kOldestReadableVersion;
  const bool valid = head.magic == ControlHead::kMagic && head.version >= oldest && head.version <= kVersion &&
                     head.ranks >= 1 && head.ranks <= kMaxGroupRanks && info.st_size == BytesFor(head.ranks);
  if (!valid) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": found another file, expected the control file of a process group of this xlad version"));
  }
  return control;
}

std::unique_ptr<ControlFile> ControlFile::InMemory(std::byte* address, int ranks, bool create) {
  std::unique_ptr<ControlFile> control(new ControlFile());
  control->address_ = address;
  control->bytes_ = BytesFor(ranks);
  control->maps_file_ = false;
  if (!create) return control;
  auto* head = new (address) ControlHead();
  head->version = kVersion;
  head->ranks = ranks;
  head->bytes = control->bytes_;
  for (int rank = 0; rank < ranks; ++rank) {
    // Only members whose initial values are not zero are written. The texts and windows, which these ranks do not use,
    // then take no memory.
    control->rank(rank).core.store(-1, std::memory_order_relaxed);
    control->rank(rank).waits_for.store(-1, std::memory_order_relaxed);
  }
  head->magic = ControlHead::kMagic;
  return control;
}

ControlFile::~ControlFile() {
  if (address_ != nullptr && maps_file_) munmap(address_, bytes_);
}

RankBlock& ControlFile::rank(int rank) const {
  return *reinterpret_cast<RankBlock*>(address_ + kHeadBytes + rank * kBlockBytes);
}

SignalCell& ControlFile::cell(int flag, int from, int to) const {
  auto* cells = reinterpret_cast<SignalCell*>(address_ + kHeadBytes + ranks() * kBlockBytes);
  return cells[(flag * ranks() + from) * CellsPerRank(ranks()) + to];
}

void ControlFile::Unlink() { unlink(path_.c_str()); }

absl::StatusOr<std::string> ControlFolder() {
  const char* const chosen = std::getenv("XLAD_COMM_DIR");
  std::string folder = chosen != nullptr ? chosen : "";
  if (folder.empty()) {
    const bool has_memory = access("/dev/shm", W_OK) == 0;
    folder = absl::StrCat(has_memory ? "/dev/shm" : "/tmp", "/xlad-comm-", geteuid());
  }
  XLAD_RETURN_IF_ERROR(
      MakeOwnFolder(folder, /*is_private=*/false, "set XLAD_COMM_DIR to a folder that this user can create"));
  return folder;
}

absl::StatusOr<std::unique_ptr<ControlFile>> ShareControlFile(
    absl::string_view name, int rank, int ranks, Rendezvous* rendezvous,
    const std::function<absl::Status(ControlFile&)>& prepare) {
  constexpr char kPathKey[] = "control";
  std::unique_ptr<ControlFile> control;
  if (rank == 0) {
    XLAD_ASSIGN_OR_RETURN(const std::string folder, ControlFolder());
    RemoveOldControlFiles(folder);
    const std::string path = absl::StrCat(folder, "/", name, "-", getpid());
    XLAD_ASSIGN_OR_RETURN(control, ControlFile::Create(path, ranks));
    absl::Status status = prepare(*control);
    if (status.ok()) status = rendezvous->Put(kPathKey, path);
    if (!status.ok()) control->Unlink();
    XLAD_RETURN_IF_ERROR(status);
    return control;
  }
  XLAD_ASSIGN_OR_RETURN(const std::string path, rendezvous->Get(0, kPathKey));
  XLAD_ASSIGN_OR_RETURN(control, ControlFile::Open(path));
  if (control->ranks() == ranks) return control;
  return absl::FailedPreconditionError(absl::StrCat("found that rank 0 has formed a group of ",
                                                    Counted(control->ranks(), "rank"), ", expected ", ranks));
}

void RankBlock::SetProcess() {
  pid = getpid();
  std::strncpy(host, HostName().c_str(), sizeof host - 1);
  start_ticks = StartOfProcess(pid);
}

void RankBlock::SetText(size_t index, const std::string& text) {
  std::strncpy(texts[index], text.c_str(), kTextBytes - 1);  // Also fills the rest with zeros.
}

OperationTexts::OperationTexts(RankBlock* block) : block_(block), used_(kSharedText) {
  block->SetText(kSharedText, "one of many operations");
}

// The search begins after the last text: peers may still name an operation that has been destroyed, so its text is kept
// as long as possible.
uint64_t OperationTexts::Add(const std::string& text) {
  size_t free = used_.size();
  for (size_t i = 1; i <= used_.size() && free == used_.size(); ++i) {
    const size_t index = (last_ + i) % used_.size();
    if (!used_[index]) free = index;
  }
  if (free < used_.size()) {
    block_->SetText(free, text);
    used_[free] = true;
    last_ = free;
  }
  return (Hash64(text) & ~uint64_t{0xFFFF}) | free;
}

void OperationTexts::Remove(uint64_t word) {
  if (TextIndex(word) < used_.size()) used_[TextIndex(word)] = false;
}

std::string OperationText(const RankBlock& block, uint64_t operation) {
  const char* const text = block.texts[TextIndex(operation) % RankBlock::kTexts];
  return std::string(text, strnlen(text, RankBlock::kTextBytes));
}

uint64_t EnteredOnMemory(const RankBlock& block) {
  return std::max(block.lines[0].sequence.load(std::memory_order_acquire),
                  block.lines[1].sequence.load(std::memory_order_acquire));
}

// A rank that enters an operation on mapped memory after one with messages has written `entered` before. The number of
// the messages is therefore the same before and after the others are read only if the rank was at this position.
std::optional<RankPosition> PositionOf(const RankBlock& block) {
  RankPosition position;
  position.messages = block.messages.entered.load(std::memory_order_acquire);
  position.mapped = EnteredOnMemory(block);
  const uint64_t failed = block.messages.failed.load();
  position.continued = failed != 0 && position.mapped >= failed;
  position.is_inside = block.finished.load() < position.mapped && block.messages.after.load() < position.mapped;
  if (block.messages.entered.load(std::memory_order_acquire) != position.messages) return std::nullopt;
  return position;
}

// If both ranks are in the same operation on mapped memory, they have entered the same operations before it.
bool AreInOneOrder(const RankPosition& a, const RankPosition& b) {
  const RankPosition& behind = a.messages < b.messages ? a : b;
  const RankPosition& ahead = a.messages < b.messages ? b : a;
  if (ahead.messages == behind.messages || behind.mapped < ahead.mapped || behind.continued) return true;
  return behind.mapped == ahead.mapped && !(behind.is_inside && ahead.is_inside);
}

std::string LastOperation(const RankBlock& block, const RankPosition& position) {
  if (position.all() == 0) return "no operation";
  const MessageOperations& messages = block.messages;
  const bool sends = position.messages > 0 && messages.after.load() == position.mapped;
  return OperationText(block, sends ? messages.operation.load() : block.lines[position.mapped % 2].operation);
}

std::string OperationAhead(const RankBlock& block, const RankPosition& position, const RankPosition& other) {
  const bool sends = position.messages > other.messages;
  return OperationText(block, sends ? block.messages.operation.load() : block.lines[position.mapped % 2].operation);
}

uint64_t CpuTicks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return RealClock().NowNs();
#endif
}

}  // namespace xlad::collectives
