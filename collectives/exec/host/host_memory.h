// Memory that the processes of one host share: the arena in which a process has the buffers of its devices, and areas
// in which groups of devices meet.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/status.h"
#include "collectives/exec/transports/shared_memory/shared_memory.h"

namespace xlad::collectives {

// What other processes and devices need in order to reach the memory of a process.
struct HostAddress {
  std::string machine;  // MachineName; empty if no memory is shared with other processes.
  std::string process;  // Different for every HostMemory on the machine.
  std::string arena;    // The name of the segment, or empty if the process has no arena.
  std::string Encode() const;
  static absl::StatusOr<HostAddress> Decode(absl::string_view text);
};

// Thread-safe.
class HostMemory {
 public:
  // `with_arena`: other processes access buffers of this one. If the system does not let processes share memory, no
  // arena is made and the reason is logged.
  static std::unique_ptr<HostMemory> Make(bool with_arena);

  const HostAddress& address() const { return address_; }
  bool has_arena() const { return arena_ != nullptr; }

  // Memory in the arena, aligned to 64 bytes; its contents are undefined. ResourceExhausted if there is not enough.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes);
  // `bytes` as in Allocate. After KeepAll the memory is not used again, because a peer may still write to it.
  void Free(std::byte* address, int64_t bytes);
  void KeepAll();

  // The offset of [address, address + bytes) in the arena, or nullopt if it is not in the arena.
  std::optional<uint64_t> Find(const void* address, int64_t bytes) const;
  // Maps the arena of a process, which may be this one, by HostAddress::arena.
  struct Arena {
    std::byte* base = nullptr;
    int64_t bytes = 0;
  };
  absl::StatusOr<Arena> OpenArena(const std::string& name);

  // A new segment of zeros, or one by its name. All callers in this process get the same mapping, which lives as long
  // as this object.
  absl::StatusOr<SharedSegment*> CreateArea(int64_t bytes);
  absl::StatusOr<SharedSegment*> OpenArea(const std::string& name);

 private:
  HostMemory() = default;

  HostAddress address_;
  std::unique_ptr<SharedSegment> arena_;  // May be null.
  mutable std::mutex mutex_;
  bool keep_all_ = false;
  std::map<int64_t, int64_t> free_;  // Begin to end of the free ranges of the arena.
  std::map<std::string, std::unique_ptr<SharedSegment>> areas_;
};

}  // namespace xlad::collectives
