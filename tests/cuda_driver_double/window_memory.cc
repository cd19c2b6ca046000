#include "tests/cuda_driver_double/window_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>

namespace xlad::cuda_double {
namespace {

constexpr uint64_t kPage = 4096;

void* Map(uint64_t bytes, int protection, int flags, int file, uint64_t offset = 0) {
  void* const address = mmap(nullptr, bytes, protection, flags | MAP_NORESERVE, file, static_cast<off_t>(offset));
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
  for (const auto& [exported, opened] : opened_) Unmap(opened);
  for (const auto& [address, pinned] : outside_) std::free(pinned.real);
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
  outside_[reinterpret_cast<uint64_t>(address)] = {bytes, static_cast<std::byte*>(address)};
  ++changes_;
  return address;
}

bool WindowMemory::FreePinned(void* address) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  if (outside_.erase(reinterpret_cast<uint64_t>(address)) == 0) return false;
  ++changes_;
  std::free(address);
  return true;
}

bool WindowMemory::Export(uint64_t address, Exported* exported) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = used_.find(address - reinterpret_cast<uint64_t>(handed_out_));
  if (found == used_.end()) return false;
  *exported = {getpid(), file_, found->first, found->second};
  return true;
}

uint64_t WindowMemory::Open(const Exported& exported) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  if (const auto found = opened_.find(exported); found != opened_.end()) {
    ++found->second.count;
    return found->second.address;
  }
  const std::string path = "/proc/" + std::to_string(exported.process) + "/fd/" + std::to_string(exported.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return 0;
  const uint64_t first = exported.offset / kPage * kPage, before = exported.offset - first;
  Opened opened;
  opened.count = 1;
  opened.map_bytes = before + exported.bytes;
  opened.real_map = static_cast<std::byte*>(Map(opened.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, first));
  opened.handed_out_map = static_cast<std::byte*>(Map(opened.map_bytes, PROT_NONE, MAP_SHARED, file, first));
  close(file);
  opened.address = reinterpret_cast<uint64_t>(opened.handed_out_map) + before;
  opened_[exported] = opened;
  outside_[opened.address] = {exported.bytes, opened.real_map + before};
  ++changes_;
  return opened.address;
}

bool WindowMemory::Close(uint64_t address) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  const auto found = std::find_if(opened_.begin(), opened_.end(),
                                  [address](const auto& opened) { return opened.second.address == address; });
  if (found == opened_.end()) return false;
  if (--found->second.count > 0) return true;
  Unmap(found->second);
  opened_.erase(found);
  return true;
}

void WindowMemory::Unmap(const Opened& opened) {
  ++changes_;
  outside_.erase(opened.address);
  munmap(opened.real_map, opened.map_bytes);
  munmap(opened.handed_out_map, opened.map_bytes);
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
    std::byte* real = nullptr;
  };
  static thread_local Last last;
  if (last.changes == changes_ && address - last.begin < last.bytes && bytes <= last.bytes - (address - last.begin)) {
    return last.real + (address - last.begin);
  }
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  auto next = outside_.upper_bound(address);
  if (next == outside_.begin()) return nullptr;
  --next;
  const uint64_t at = address - next->first;
  last = {changes_, next->first, next->second.bytes, next->second.real};
  return at <= last.bytes && bytes <= last.bytes - at ? last.real + at : nullptr;
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
