#include "tests/cuda_driver_double/window_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

namespace xlad::cuda_double {
namespace {

constexpr uint64_t kPage = 4096;

void* Map(uint64_t bytes, int protection, int flags, int file) {
  void* const address = mmap(nullptr, bytes, protection, flags | MAP_NORESERVE, file, 0);
  if (address == MAP_FAILED) std::abort();
  return address;
}

}  // namespace

WindowMemory::WindowMemory(uint64_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
  file_ = memfd_create("xlad-cuda-double", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(bytes_)) != 0) std::abort();
  real_ = static_cast<std::byte*>(Map(bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_));
  handed_out_ = static_cast<std::byte*>(Map(bytes_, PROT_NONE, MAP_SHARED, file_));
  live_ = static_cast<uint8_t*>(Map(bytes_ / kUnit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1));
  free_[0] = bytes_;
}

WindowMemory::~WindowMemory() {
  ++changes_;
  for (const auto& [address, bytes] : pinned_) std::free(reinterpret_cast<void*>(address));
  munmap(real_, bytes_);
  munmap(handed_out_, bytes_);
  munmap(live_, bytes_ / kUnit);
  close(file_);
}

void WindowMemory::Mark(uint64_t offset, uint64_t bytes, bool is_live) {
  std::memset(live_ + offset / kUnit, is_live ? 1 : 0, bytes / kUnit);
}

uint64_t WindowMemory::Allocate(uint64_t bytes) {
  if (bytes > bytes_) return 0;
  bytes = std::max<uint64_t>(bytes, 1);
  const uint64_t size = (bytes + kUnit - 1) / kUnit * kUnit;
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    if (range->second < size) continue;
    const auto [offset, available] = *range;
    free_.erase(range);
    if (available > size) free_[offset + size] = available - size;
    used_[offset] = size;
    Mark(offset, size, true);
    return reinterpret_cast<uint64_t>(handed_out_) + offset;
  }
  return 0;
}

bool WindowMemory::Free(uint64_t address) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  const auto found = used_.find(address - reinterpret_cast<uint64_t>(handed_out_));
  if (found == used_.end()) return false;
  auto [offset, size] = *found;
  used_.erase(found);
  Mark(offset, size, false);
  // Whole pages are returned to the system; partial pages are kept.
  const uint64_t first = (offset + kPage - 1) / kPage * kPage, last = (offset + size) / kPage * kPage;
  if (first < last) {
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                    static_cast<off_t>(last - first));
  }
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return true;
    }
  }
  free_[offset] = size;
  return true;
}

void* WindowMemory::AllocatePinned(uint64_t bytes) {
  void* address = nullptr;
  if (bytes > bytes_ || posix_memalign(&address, kPage, bytes) != 0) return nullptr;
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  pinned_[reinterpret_cast<uint64_t>(address)] = bytes;
  ++changes_;
  return address;
}

bool WindowMemory::FreePinned(void* address) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  if (pinned_.erase(reinterpret_cast<uint64_t>(address)) == 0) return false;
  ++changes_;
  std::free(address);
  return true;
}

std::byte* WindowMemory::Range(uint64_t address, uint64_t bytes) const {
  const uint64_t offset = address - reinterpret_cast<uint64_t>(handed_out_);
  if (offset < bytes_) {
    if (bytes > bytes_ - offset || !IsLive(offset) || (bytes > 0 && !IsLive(offset + bytes - 1))) return nullptr;
    return real_ + offset;
  }
  // Most accesses of a thread are to the allocation of its previous access.
  struct Last {
    uint64_t changes = 0, begin = 0, bytes = 0;
  };
  static thread_local Last last;
  if (last.changes == changes_ && address - last.begin < last.bytes && bytes <= last.bytes - (address - last.begin)) {
    return reinterpret_cast<std::byte*>(address);
  }
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  auto next = pinned_.upper_bound(address);
  if (next == pinned_.begin()) return nullptr;
  --next;
  const uint64_t at = address - next->first;
  last = {changes_, next->first, next->second};
  return at <= next->second && bytes <= next->second - at ? reinterpret_cast<std::byte*>(address) : nullptr;
}

bool WindowMemory::IsFreed(uint64_t address) const {
  const uint64_t offset = address - reinterpret_cast<uint64_t>(handed_out_);
  // An empty buffer may begin at the end of an allocation.
  return offset < bytes_ && !IsLive(offset) && (offset == 0 || !IsLive(offset - 1));
}

uint64_t WindowMemory::free_bytes() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& range : free_) bytes += range.second;
  return bytes;
}

uint64_t WindowMemory::Place(const std::vector<std::byte>& contents) {
  const uint64_t address = Allocate(contents.size());
  if (address != 0) std::memcpy(Range(address, contents.size()), contents.data(), contents.size());
  return address;
}

}  // namespace xlad::cuda_double
