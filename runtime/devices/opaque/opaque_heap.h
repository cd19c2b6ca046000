// Memory with two mappings: the addresses that the device returns for its memory can never be accessed, and only this
// folder uses the real addresses.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/exec/transports/shared_memory/shared_memory.h"
#include "proto/executable.pb.h"

namespace xlad::runtime {

// One block is
//
//   file (memfd)      |  bytes, rounded up to pages  |
//   handed out             PROT_NONE mapping            an access faults (SIGSEGV)
//   real                   read-write mapping           used by kernels, library ops and copies of the device
//
// A block of MEMORY_PINNED_HOST has a single read-write mapping. A block that processes share has a file of its own.
// Thread-safe.
class OpaqueHeap {
 public:
  // `device` is the name of the device, for messages.
  static absl::StatusOr<std::unique_ptr<OpaqueHeap>> Make(const std::string& device);
  ~OpaqueHeap();  // All blocks must have been freed.

  // Returns the address that the device returns to its caller. ResourceExhausted if `bytes` is negative, or if all
  // devices of this process together would have more than the process may use (base/process/memory_limit.h) or the
  // machine can map.
  absl::StatusOr<void*> Allocate(int64_t bytes, MemoryKind kind);
  // The same for device memory that other heaps can open by the name of its segment, also those of other processes.
  struct Shared {
    void* address = nullptr;
    std::string segment;
  };
  absl::StatusOr<Shared> AllocateShared(int64_t bytes);
  // Makes a block of the segment of another heap. Its contents stay accessible until Free, even if the other heap is
  // destroyed. Errors: those of SharedSegment::Open.
  absl::StatusOr<void*> OpenShared(const std::string& segment);
  void Free(void* address);

  // The real address of the `bytes` bytes that begin at a handed-out address. InvalidArgument if they are not inside
  // one block, in particular if the block has been freed. Returns null for a range of 0 bytes, which may be anywhere.
  absl::StatusOr<std::byte*> Translate(const void* address, int64_t bytes) const;
  // The real address of a kernel's buffer. The size is not known here, so the address may be the end of a block.
  // InvalidArgument if the address is in no block.
  absl::StatusOr<void*> TranslateBuffer(const void* address) const;
  const std::string& device() const { return device_; }

 private:
  struct Block {
    int64_t bytes = 0;
    int64_t mapped_bytes = 0;  // Larger than `bytes`, so that the end of a block is inside its mapping.
    int64_t file_offset = 0;
    std::byte* real = nullptr;
    int64_t reserved = 0;                                   // The bytes that count for the maximum.
    std::unique_ptr<collectives::SharedSegment> segment{};  // Null if the block is not shared.
  };

  OpaqueHeap(std::string device, int file, int64_t most_bytes)
      : device_(std::move(device)), file_(file), most_bytes_(most_bytes) {}
  absl::Status Reserve(int64_t bytes) const;
  absl::StatusOr<void*> Add(std::unique_ptr<collectives::SharedSegment> segment, int64_t reserved);
  absl::Status OutOfMemory(int64_t bytes, const std::string& why) const;
  absl::Status NotInBlock(const void* address, const std::string& what) const;
  // The block whose mapping contains the address, or null.
  const std::pair<std::byte* const, Block>* Find(const void* address) const;

  const std::string device_;
  const int file_;
  const int64_t most_bytes_;  // The maximum for all devices of the process.
  mutable std::shared_mutex mutex_;
  std::map<std::byte*, Block> blocks_;  // Keyed by handed-out address.
  int64_t file_bytes_ = 0;              // Offsets are not reused; pages of freed blocks are returned to the system.
};

}  // namespace xlad::runtime
