#include "collectives/exec/host/host_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/random.h"
#include "base/rounding.h"

namespace xlad::collectives {
namespace {

constexpr int64_t kAlignment = 64;
// Freed ranges of at least this size are returned to the system.
constexpr int64_t kGivenBackBytes = 1 << 20;

int64_t PageBytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

// The arena reserves only address space; a page takes memory when it is first used. The system does not count shared
// memory against RLIMIT_DATA, so this function applies the limit.
int64_t ArenaBytes() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * PageBytes();
  rlimit limit{};
  for (const auto what : {RLIMIT_DATA, RLIMIT_AS}) {
    if (getrlimit(what, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    // The rest of the address space is left for other uses.
    bytes = std::min<int64_t>(bytes, static_cast<int64_t>(what == RLIMIT_AS ? limit.rlim_cur / 4 : limit.rlim_cur));
  }
  return RoundUp(std::max<int64_t>(bytes, PageBytes()), PageBytes());
}

}  // namespace

std::string HostAddress::Encode() const { return absl::StrJoin({machine, process, arena}, "\n"); }

absl::StatusOr<HostAddress> HostAddress::Decode(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '\n');
  if (parts.size() == 3) return HostAddress{parts[0], parts[1], parts[2]};
  return absl::DataLossError(absl::StrCat("found an address of host memory with ", parts.size(), " parts, expected 3"));
}

std::unique_ptr<HostMemory> HostMemory::Make(bool with_arena) {
  std::unique_ptr<HostMemory> memory(new HostMemory());
  memory->address_.process = absl::StrCat(getpid(), "-", SystemRandom()->Hex(8));
  if (!with_arena) return memory;
  const std::string machine = MachineName();
  absl::StatusOr<std::unique_ptr<SharedSegment>> arena =
      machine.empty() ? absl::UnavailableError("the boot id or the PID namespace cannot be read")
                      : SharedSegment::Create(ArenaBytes());
  if (!arena.ok()) {
    LogWarn("no memory is shared with other processes; collectives use messages",
            {{"error", std::string(arena.status().message())}});
    return memory;
  }
  memory->address_.machine = machine;
  memory->address_.arena = (*arena)->name();
  memory->arena_ = *std::move(arena);
  memory->free_[0] = memory->arena_->bytes();
  return memory;
}

// Uses first fit, which is fast enough because buffers are allocated when a program is loaded, not while it runs.
absl::StatusOr<std::byte*> HostMemory::Allocate(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t size = RoundUp(std::max<int64_t>(bytes, 1), kAlignment);
  for (auto range = free_.begin(); bytes >= 0 && range != free_.end(); ++range) {
    const auto [begin, end] = *range;
    if (end - begin < size) continue;
    free_.erase(range);
    if (end - begin > size) free_[begin + size] = end;
    return arena_->data() + begin;
  }
  return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes of shared memory"));
}

void HostMemory::Free(std::byte* address, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (keep_all_) return;
  int64_t begin = address - arena_->data();
  int64_t end = begin + RoundUp(std::max<int64_t>(bytes, 1), kAlignment);
  const auto next = free_.lower_bound(begin);
  if (next != free_.begin() && std::prev(next)->second == begin) begin = std::prev(next)->first;
  if (next != free_.end() && next->first == end) {
    end = next->second;
    free_.erase(next);
  }
  free_[begin] = end;
  if (bytes < kGivenBackBytes) return;
  auto* const first = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<intptr_t>(address), PageBytes()));
  const int64_t whole = (address + bytes - first) / PageBytes() * PageBytes();
  if (whole > 0) madvise(first, whole, MADV_REMOVE);
}

void HostMemory::KeepAll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  keep_all_ = true;
}

std::optional<uint64_t> HostMemory::Find(const void* address, int64_t bytes) const {
  if (arena_ == nullptr) return std::nullopt;
  const auto at = reinterpret_cast<uintptr_t>(address), begin = reinterpret_cast<uintptr_t>(arena_->data());
  if (at < begin || at - begin + static_cast<uint64_t>(bytes) > arena_->bytes()) return std::nullopt;
  return at - begin;
}

absl::StatusOr<HostMemory::Arena> HostMemory::OpenArena(const std::string& name) {
  SharedSegment* segment = arena_.get();
  if (segment == nullptr || name != segment->name()) {
    XLAD_ASSIGN_OR_RETURN(segment, OpenArea(name));
  }
  return Arena{segment->data(), static_cast<int64_t>(segment->bytes())};
}

absl::StatusOr<SharedSegment*> HostMemory::CreateArea(int64_t bytes) {
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<SharedSegment> segment, SharedSegment::Create(bytes));
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<SharedSegment>& area = areas_[segment->name()];
  area = std::move(segment);
  return area.get();
}

absl::StatusOr<SharedSegment*> HostMemory::OpenArea(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = areas_.find(name);
  if (found != areas_.end()) return found->second.get();
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<SharedSegment> segment, SharedSegment::Open(name, 0));
  return (areas_[name] = std::move(segment)).get();
}

}  // namespace xlad::collectives
