// The GPU memory of the test double of the driver. The host cannot access it at the addresses that the driver functions
// return.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <shared_mutex>
#include <vector>

#include "tests/cuda_driver_double/ptx_program.h"

namespace xlad::cuda_double {

// One file in memory, mapped twice:
//
//   handed out   PROT_NONE      an access by the host faults (SIGSEGV)
//   real         read, write    used by copies and kernels of the double
//
// Accesses outside of live allocations are detected, in units of 512 bytes. Pinned memory of the host has one address,
// which the GPU may use as well. Thread-safe.
class WindowMemory final : public GlobalMemory {
 public:
  explicit WindowMemory(uint64_t bytes);
  ~WindowMemory() override;

  // Returns the address, or 0 if there is not enough memory. No other allocation has the same address, even if this one
  // has no bytes.
  uint64_t Allocate(uint64_t bytes);
  // Returns false if the address is not that of an allocation.
  bool Free(uint64_t address);
  // Returns null if there is not enough memory.
  void* AllocatePinned(uint64_t bytes);
  // Returns false if the address is not that of a pinned allocation.
  bool FreePinned(void* address);
  // Returns the real memory of a range, or null if its first or last byte is not allocated.
  std::byte* Range(uint64_t address, uint64_t bytes) const;
  // Whether the address is in the GPU's memory, but neither in an allocation nor at the end of one.
  bool IsFreed(uint64_t address) const;
  uint64_t free_bytes() const;
  uint64_t total_bytes() const { return bytes_; }

  uint64_t Place(const std::vector<std::byte>& contents) override;
  std::byte* Find(uint64_t address, uint64_t bytes) const override { return Range(address, bytes); }

 private:
  bool IsLive(uint64_t offset) const { return live_[offset / kUnit] != 0; }
  void Mark(uint64_t offset, uint64_t bytes, bool is_live);

  static constexpr uint64_t kUnit = 512;
  const uint64_t bytes_;
  int file_ = -1;
  std::byte* real_ = nullptr;
  std::byte* handed_out_ = nullptr;
  uint8_t* live_ = nullptr;  // Whether each unit is allocated.
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, uint64_t> used_, free_;  // Sizes by offset.
  std::map<uint64_t, uint64_t> pinned_;       // Sizes by address.
  // The number of changes of pinned_ in all instances.
  static inline std::atomic<uint64_t> changes_{1};
};

}  // namespace xlad::cuda_double
