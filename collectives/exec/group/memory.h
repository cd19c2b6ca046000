// Memory of one rank that the other ranks of its process group can map, so that they read and write it directly.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/exec/group/control.h"
#include "collectives/exec/group/core.h"
#include "collectives/exec/transports/shared_memory/shared_memory.h"

namespace xlad::collectives {

// The memory that this rank has allocated, and the memory of other ranks that it has mapped. Thread-safe, except that
// only one thread may call Address.
class GroupMemory final : public WindowMemory {
 public:
  // `control` must outlive this object.
  GroupMemory(ControlFile* control, int rank) : control_(control), rank_(rank), peers_(control->ranks()) {}

  // Returns memory that is zero, aligned to 4096 bytes, and on huge pages if the system has any. InvalidArgument if
  // `bytes` is less than 1. ResourceExhausted if this rank has RankBlock::kWindows allocations or there is not enough
  // memory.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes);
  // InvalidArgument unless `address` is a result of Allocate that has not been freed. A peer that has mapped the memory
  // for a running operation can continue to use it.
  absl::Status Free(std::byte* address);

  // Unmaps memory that a peer has freed only when it maps new memory of the same peer. Until then, or until this object
  // is destroyed, the system keeps the freed memory.
  absl::StatusOr<std::byte*> Address(int peer, const WindowPosition& position, int64_t bytes) override;
  std::optional<WindowPosition> Find(const void* address, int64_t bytes) const override;

 private:
  struct Own {
    std::unique_ptr<SharedSegment> segment;
    std::byte* address = nullptr;
    int64_t bytes = 0;
  };
  struct Mapped {
    uint32_t generation = 0;
    std::unique_ptr<SharedSegment> segment;
  };

  ControlFile* const control_;
  const int rank_;
  mutable std::mutex mutex_;
  std::map<uint32_t, Own> own_;  // By window.
  std::vector<std::map<uint32_t, Mapped>> peers_;
};

// Asks the system to use huge pages for a segment. Has no effect if the system does not support them.
void PreferHugePages(const SharedSegment& segment);

}  // namespace xlad::collectives
