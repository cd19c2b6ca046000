// Memory that the processes of one host share: an arena, which contains the buffers of one process's devices, and
// areas, which contain the control files and scratch of groups of devices (HostGroup).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/status.h"
#include "collectives/exec/transports/shared_memory/shared_memory.h"

namespace xlad::collectives {

// The data that other processes and devices need to reach the memory of a process.
struct HostAddress {
  std::string machine;  // The MachineName of the host; empty if no memory is shared with other processes.
  std::string process;  // Differs between all HostMemory objects on the machine.
  std::string arena;    // The name of the segment, or empty if the process has no arena.
  // Returns the address as a text. Decode is the inverse, and returns DataLoss if the text is malformed.
  std::string Encode() const;
  static absl::StatusOr<HostAddress> Decode(absl::string_view text);
};

// Thread-safe.
class HostMemory {
 public:
  // `with_arena` is true if other processes access buffers of this process. If the system does not let processes share
  // memory, no arena is created and the reason is logged.
  static std::unique_ptr<HostMemory> Make(bool with_arena);

  const HostAddress& address() const { return address_; }
  bool has_arena() const { return arena_ != nullptr; }

  // Returns memory in the arena, aligned to 64 bytes, with undefined contents. ResourceExhausted if there is not enough
  // memory.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes);
  // `bytes` must be the size passed to Allocate. After KeepAll, freed memory is not used again, because a peer may
  // still write to it.
  void Free(std::byte* address, int64_t bytes);
  void KeepAll();

  // Returns the offset of [address, address + bytes) in the arena, or nullopt if it is not in the arena.
  std::optional<uint64_t> Find(const void* address, int64_t bytes) const;
  // An arena of some process, possibly this one. OpenArena maps it, given its HostAddress::arena.
  struct Arena {
    std::byte* base = nullptr;
    int64_t bytes = 0;
  };
  absl::StatusOr<Arena> OpenArena(const std::string& name);

  // CreateArea returns a new segment of zeros, and OpenArea returns the segment with this name. All callers in this
  // process get the same mapping, which belongs to this object.
  absl::StatusOr<SharedSegment*> CreateArea(int64_t bytes);
  absl::StatusOr<SharedSegment*> OpenArea(const std::string& name);

 private:
  HostMemory() = default;

  HostAddress address_;
  std::unique_ptr<SharedSegment> arena_;  // Null if this process has no arena.
  mutable std::mutex mutex_;
  bool keep_all_ = false;
  std::map<int64_t, int64_t> free_;  // The free ranges of the arena: a map from the start to the end of each range.
  std::map<std::string, std::unique_ptr<SharedSegment>> areas_;
};

}  // namespace xlad::collectives
