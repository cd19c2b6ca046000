#include "runtime/devices/opaque/opaque_heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/process/memory_limit.h"
#include "base/status.h"

namespace xlad::runtime {
namespace {

// The bytes of all blocks of all devices of this process, because the memory limit applies to the process.
std::atomic<int64_t> allocated = 0;

}  // namespace

absl::Status OpaqueHeap::OutOfMemory(int64_t bytes, const std::string& why) const {
  return absl::ResourceExhaustedError(absl::StrCat(device_, ": cannot allocate ", bytes, " bytes: ", why));
}

absl::Status OpaqueHeap::NotInBlock(const void* address, const std::string& what) const {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: found %s at %p, expected it inside one allocation of this device that has not been freed",
                      device_, what, address));
}

absl::StatusOr<std::unique_ptr<OpaqueHeap>> OpaqueHeap::Make(const std::string& device) {
  const int file = memfd_create("xlad-opaque", MFD_CLOEXEC);
  if (file < 0) return absl::InternalError(absl::StrCat(device, ": memfd_create: ", std::strerror(errno)));
  return std::unique_ptr<OpaqueHeap>(new OpaqueHeap(device, file, UsableMemoryBytes()));
}

OpaqueHeap::~OpaqueHeap() {
  XLAD_CHECK(blocks_.empty());
  close(file_);
}

absl::Status OpaqueHeap::Reserve(int64_t bytes) const {
  int64_t before = allocated;
  do {
    if (bytes < 0 || bytes > most_bytes_ - before) {
      return OutOfMemory(
          bytes, absl::StrCat("expected 0 to ", std::max<int64_t>(0, most_bytes_ - before), ": this process may use ",
                              most_bytes_, " bytes of memory, and ", before, " are allocated on its devices"));
    }
  } while (!allocated.compare_exchange_weak(before, before + bytes));
  return absl::OkStatus();
}

absl::StatusOr<void*> OpaqueHeap::Allocate(int64_t bytes, MemoryKind kind) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  XLAD_RETURN_IF_ERROR(Reserve(bytes));
  absl::Cleanup give_back = [bytes] { allocated -= bytes; };
  Block block;
  block.bytes = block.reserved = bytes;
  block.mapped_bytes = (bytes / page + 1) * page;
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  block.file_offset = file_bytes_;
  if (ftruncate(file_, file_bytes_ + block.mapped_bytes) != 0) return OutOfMemory(bytes, std::strerror(errno));
  file_bytes_ += block.mapped_bytes;
  void* const real = mmap(nullptr, block.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, block.file_offset);
  if (real == MAP_FAILED) return OutOfMemory(bytes, std::strerror(errno));
  block.real = static_cast<std::byte*>(real);
  void* handed_out = real;
  if (kind != MEMORY_PINNED_HOST) {
    handed_out = mmap(nullptr, block.mapped_bytes, PROT_NONE, MAP_SHARED, file_, block.file_offset);
    if (handed_out == MAP_FAILED) {
      const std::string why = std::strerror(errno);
      munmap(real, block.mapped_bytes);
      return OutOfMemory(bytes, why);
    }
  }
  blocks_.emplace(static_cast<std::byte*>(handed_out), std::move(block));
  std::move(give_back).Cancel();
  return handed_out;
}

absl::StatusOr<OpaqueHeap::Shared> OpaqueHeap::AllocateShared(int64_t bytes) {
  XLAD_RETURN_IF_ERROR(Reserve(bytes));
  absl::Cleanup give_back = [bytes] { allocated -= bytes; };
  XLAD_ASSIGN_OR_RETURN(auto segment, collectives::SharedSegment::Create(static_cast<size_t>(bytes)));
  const std::string name = segment->name();
  XLAD_ASSIGN_OR_RETURN(void* const address, Add(std::move(segment), bytes));
  std::move(give_back).Cancel();
  return Shared{address, name};
}

absl::StatusOr<void*> OpaqueHeap::OpenShared(const std::string& segment) {
  XLAD_ASSIGN_OR_RETURN(auto opened, collectives::SharedSegment::Open(segment, /*bytes=*/0));
  return Add(std::move(opened), /*reserved=*/0);
}

absl::StatusOr<void*> OpaqueHeap::Add(std::unique_ptr<collectives::SharedSegment> segment, int64_t reserved) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  Block block;
  block.bytes = static_cast<int64_t>(segment->bytes());
  block.mapped_bytes = (block.bytes / page + 1) * page;
  block.real = segment->data();
  block.reserved = reserved;
  block.segment = std::move(segment);
  void* const handed_out =
      mmap(nullptr, block.mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (handed_out == MAP_FAILED) return OutOfMemory(block.bytes, std::strerror(errno));
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  blocks_.emplace(static_cast<std::byte*>(handed_out), std::move(block));
  return handed_out;
}

void OpaqueHeap::Free(void* address) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  const auto found = blocks_.find(static_cast<std::byte*>(address));
  XLAD_CHECK(found != blocks_.end());
  const Block& block = found->second;
  if (block.real != address) munmap(address, block.mapped_bytes);
  if (block.segment == nullptr) {
    munmap(block.real, block.mapped_bytes);
    // Returns the pages to the system. If this fails, they stay allocated until the device is destroyed.
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block.file_offset, block.mapped_bytes);
  }
  allocated -= block.reserved;
  blocks_.erase(found);
}

const std::pair<std::byte* const, OpaqueHeap::Block>* OpaqueHeap::Find(const void* address) const {
  auto* const at = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return nullptr;
  --next;
  return at - next->first < next->second.mapped_bytes ? &*next : nullptr;
}

absl::StatusOr<std::byte*> OpaqueHeap::Translate(const void* address, int64_t bytes) const {
  if (bytes == 0) return nullptr;
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto* const found = Find(address);
  if (found == nullptr || bytes < 0) return NotInBlock(address, absl::StrCat("a range of ", bytes, " bytes"));
  const int64_t offset = static_cast<const std::byte*>(address) - found->first;
  if (offset > found->second.bytes || bytes > found->second.bytes - offset) {
    return NotInBlock(address, absl::StrCat("a range of ", bytes, " bytes"));
  }
  return found->second.real + offset;
}

absl::StatusOr<void*> OpaqueHeap::TranslateBuffer(const void* address) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto* const found = Find(address);
  if (found == nullptr) return NotInBlock(address, "a buffer");
  return found->second.real + (static_cast<const std::byte*>(address) - found->first);
}

}  // namespace xlad::runtime
