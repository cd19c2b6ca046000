// The buffers that `xlad bench` gives to a group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/process/memory_limit.h"
#include "base/rounding.h"
#include "base/status.h"

namespace xlad::cli {

constexpr int64_t kBenchGuardBytes = 64;
constexpr std::byte kBenchGuard{0xA5};

// Returns how many pairs of buffers of `pair_bytes` bytes the iterations use in turn (--rotate).
inline int64_t RotatedPairs(int64_t rotate_bytes, int64_t pair_bytes) {
  return std::clamp<int64_t>(rotate_bytes / std::max<int64_t>(1, pair_bytes), 1, 100);
}

// Returns InvalidArgument if `count` operations (in all ranks together) with buffers of `bytes` bytes each exceed the
// memory that this machine has for processes. Without this check, Linux would kill some of the ranks.
inline absl::Status CheckMemory(int64_t bytes, int64_t count) {
  const int64_t limit = UsableMemoryBytes();
  if (bytes <= limit / count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("found ", count, " times ", bytes, " bytes of buffers in all ranks together, expected at most ",
                   limit, " bytes, the memory that processes may use; choose a smaller -e or --rotate"));
}

// The buffers of one rank for one size. If `registered` is true, the group's Allocate allocates them.
template <typename Group>
class Buffers {
 public:
  Buffers(Group* group, bool registered) : group_(group), registered_(registered) {}
  ~Buffers() {
    for (std::byte* address : owned_) {
      if (registered_) {
        group_->Free(address).IgnoreError();
      } else {
        std::free(address);
      }
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // Allocates a buffer of `bytes` bytes between two guards, whose bytes all have the value kBenchGuard.
  absl::StatusOr<std::byte*> Add(int64_t bytes) {
    const int64_t all = RoundUp(bytes + 2 * kBenchGuardBytes, 4096);
    std::byte* address = nullptr;
    if (registered_) {
      XLAD_ASSIGN_OR_RETURN(address, group_->Allocate(all));
    } else {
      address = static_cast<std::byte*>(std::aligned_alloc(4096, all));
      if (address == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", all, " bytes"));
    }
    std::fill(address, address + all, kBenchGuard);
    owned_.push_back(address);
    sizes_.push_back(bytes);
    return address + kBenchGuardBytes;
  }

  // The number of guards that were overwritten.
  int64_t BrokenGuards() const {
    int64_t broken = 0;
    for (size_t i = 0; i < owned_.size(); ++i) {
      const std::byte* const end = owned_[i] + kBenchGuardBytes + sizes_[i];
      const auto changed = [](std::byte b) { return b != kBenchGuard; };
      broken += std::any_of(owned_[i], owned_[i] + kBenchGuardBytes, changed);
      broken += std::any_of(end, end + kBenchGuardBytes, changed);
    }
    return broken;
  }

 private:
  Group* const group_;
  const bool registered_;
  std::vector<std::byte*> owned_;
  std::vector<int64_t> sizes_;
};

}  // namespace xlad::cli
