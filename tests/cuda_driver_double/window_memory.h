// The GPU memory of the test double of the driver. The host cannot access it at the addresses that the driver functions
// return.
#pragma once

#include <atomic>
#include <compare>
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
  // Identifies an allocation for all processes of this machine.
  struct Exported {
    int64_t process = 0, file = 0;
    uint64_t offset = 0, bytes = 0;
    friend auto operator<=>(const Exported&, const Exported&) = default;
  };
  // Returns false if the address is not that of an allocation.
  bool Export(uint64_t address, Exported* exported) const;
  // Maps an allocation of this or another process, and returns its address: the same address if it is open already.
  // Returns 0 if it cannot be mapped, for example because its process has ended.
  uint64_t Open(const Exported& exported);
  // Ends one Open. Returns false if the address is not one that Open has returned.
  bool Close(uint64_t address);
  // Returns the real memory of a range, or null if its first or last byte is not allocated.
  std::byte* Range(uint64_t address, uint64_t bytes) const;
  // Whether the address is in the GPU's memory, but neither in an allocation nor at the end of one.
  bool IsFreed(uint64_t address) const;
  uint64_t free_bytes() const;
  uint64_t total_bytes() const { return bytes_; }

  uint64_t Place(const std::vector<std::byte>& contents) override;
  std::byte* Find(uint64_t address, uint64_t bytes) const override { return Range(address, bytes); }

 private:
  struct Outside {
    uint64_t bytes = 0;
    std::byte* real = nullptr;
  };
  struct Opened {
    uint64_t address = 0;
    int count = 0;
    std::byte *real_map = nullptr, *handed_out_map = nullptr;
    uint64_t map_bytes = 0;
  };
  void Unmap(const Opened& opened);

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
  // By address: pinned memory, whose real address is the same, and opened allocations.
  std::map<uint64_t, Outside> outside_;
  std::map<Exported, Opened> opened_;
  // The number of changes of outside_ in all instances.
  static inline std::atomic<uint64_t> changes_{1};
};

}  // namespace xlad::cuda_double
