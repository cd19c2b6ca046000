#include "collectives/exec/group/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

// The offset of a window's data in its segment, so that the data is aligned to pages.
constexpr int64_t kSegmentPage = 4096;
constexpr int64_t kSegmentHead = 64;
constexpr int64_t kDataStart = kSegmentPage - kSegmentHead;

}  // namespace

void PreferHugePages(const SharedSegment& segment) {
  madvise(segment.data() - kSegmentHead, segment.bytes() + kSegmentHead, MADV_HUGEPAGE);
}

absl::StatusOr<std::byte*> GroupMemory::Allocate(int64_t bytes) {
  if (bytes < 1)
    return absl::InvalidArgumentError(absl::StrCat("found an allocation of ", bytes, " bytes, expected 1 or more"));
  std::lock_guard<std::mutex> lock(mutex_);
  uint32_t window = 0;
  while (own_.count(window) > 0) ++window;
  if (window >= RankBlock::kWindows) {
    return absl::ResourceExhaustedError(
        absl::StrCat("found ", RankBlock::kWindows, " allocations of this rank, which is the maximum; free one"));
  }
  XLAD_ASSIGN_OR_RETURN(auto segment, SharedSegment::Create(kDataStart + bytes));
  SharedWindow& shared = control_->rank(rank_).windows[window];
  if (segment->name().size() >= sizeof shared.segment) return absl::InternalError("the name of a segment is too long");
  PreferHugePages(*segment);
  std::strcpy(shared.segment, segment->name().c_str());
  shared.generation.fetch_add(1, std::memory_order_release);
  Own& own = own_[window];
  own.address = segment->data() + kDataStart;
  own.bytes = bytes;
  own.segment = std::move(segment);
  return own.address;
}

absl::Status GroupMemory::Free(std::byte* address) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = own_.begin(); at != own_.end(); ++at) {
    if (at->second.address != address) continue;
    control_->rank(rank_).windows[at->first].generation.fetch_add(1, std::memory_order_release);
    own_.erase(at);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "found an address that is not allocated, expected a result of Allocate that has not been freed");
}

std::optional<WindowPosition> GroupMemory::Find(const void* address, int64_t bytes) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto* const at = static_cast<const std::byte*>(address);
  for (const auto& [window, own] : own_) {
    if (at < own.address || at + bytes > own.address + own.bytes) continue;
    const uint32_t generation = control_->rank(rank_).windows[window].generation.load(std::memory_order_relaxed);
    return WindowPosition{window, generation, static_cast<uint64_t>(at - own.address)};
  }
  return std::nullopt;
}

absl::StatusOr<std::byte*> GroupMemory::Address(int peer, const WindowPosition& position, int64_t bytes) {
  if (position.window >= RankBlock::kWindows) {
    return absl::DataLossError(absl::StrCat("rank ", peer, " announced window ", position.window,
                                            ", expected less than ", RankBlock::kWindows));
  }
  if (position.generation % 2 == 0) {
    const bool is_empty = position.generation == 0;
    return absl::DataLossError(absl::StrCat("rank ", peer, " announced ",
                                            is_empty ? "no buffer" : "a window that does not exist",
                                            ", expected a buffer with room for ", bytes, " bytes"));
  }
  std::map<uint32_t, Mapped>& windows = peers_[peer];
  auto mapped = windows.find(position.window);
  if (mapped == windows.end() || mapped->second.generation != position.generation) {
    const RankBlock& block = control_->rank(peer);
    const SharedWindow& shared = block.windows[position.window];
    if (shared.generation.load(std::memory_order_acquire) != position.generation) {
      return absl::FailedPreconditionError(absl::StrCat("rank ", peer, " freed a buffer while an operation uses it"));
    }
    const std::string name(shared.segment, strnlen(shared.segment, sizeof shared.segment));
    XLAD_ASSIGN_OR_RETURN(auto segment, SharedSegment::Open(name, 0));
    PreferHugePages(*segment);
    // The system keeps the memory that the peer has freed as long as this rank maps it.
    std::erase_if(windows, [&](const auto& entry) {
      return block.windows[entry.first].generation.load(std::memory_order_relaxed) != entry.second.generation;
    });
    mapped = windows.insert_or_assign(position.window, Mapped{position.generation, std::move(segment)}).first;
  }
  const SharedSegment& segment = *mapped->second.segment;
  const uint64_t size = std::max<uint64_t>(segment.bytes(), kDataStart) - kDataStart;
  if (position.offset > size || static_cast<uint64_t>(bytes) > size - position.offset) {
    return absl::DataLossError(absl::StrCat("rank ", peer, " announced a buffer at ", position.offset,
                                            " of its window of ", size, " bytes, expected room for ", bytes, " bytes"));
  }
  return segment.data() + kDataStart + position.offset;
}

}  // namespace xlad::collectives
