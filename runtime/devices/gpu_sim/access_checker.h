// Finds errors in how the threads of GPU kernels access memory, and counts the bytes of global memory that they move.
//
// Code that is compiled for gpu_sim_checked reports each access of global and shared memory
// (compiler/codegen/nvptx/host_threads.h). These are errors:
//   - Races: two accesses of one byte by different threads, at least one of them a store, with no barrier between them.
//     Accesses in different parts of the kernel (between barriers) are ordered if the threads are in one block.
//     Accesses of different blocks are never ordered. A race is found even if the order in which the CPU runs the
//     threads gives the right result, because every access is compared.
//   - Accesses outside the buffer whose address they use, even if they would access another buffer. They are redirected
//     to unused memory.
//   - Reads of unwritten memory: shared memory is unwritten when a block begins, and scratch memory and results when
//     the kernel begins. Results that share the memory of an operand are written.
//   - Bytes of results that the kernel has not written when it ends, unless they share the memory of an operand.
//
// Traffic is counted in sectors of 32 bytes, the unit in which a GPU moves it. A sector that several threads of a warp
// (32 threads) access in one part of the kernel is moved once, because it stays in the cache for that time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/types/span.h"
#include "runtime/devices/cpu/object_loader.h"

namespace xlad::runtime {

enum class AccessError { kNone, kRace, kOutside, kUninitialized, kUnwritten };

// The result of checking one launch of a kernel.
struct LaunchReport {
  std::string kernel;
  AccessError error = AccessError::kNone;  // The first error.
  std::string message;                     // Empty if there is no error.
  int64_t loaded_bytes = 0;                // Traffic of global memory, in whole sectors.
  int64_t stored_bytes = 0;
  uint64_t trace = 0;  // A hash of all accesses, each with its block and thread. It does not depend on their order.
};

// Between Begin and End, the checker records the accesses of the kernel that runs on the calling thread. All tiles must
// run on that thread.
class AccessChecker {
 public:
  // The functions that checked code calls.
  static absl::Span<const ProvidedFunction> Functions();

  void Begin();
  LaunchReport End();

 private:
  friend struct AccessHooks;
  // The accesses of one byte that a later access can still race with.
  struct Shadow {
    int32_t write_tile = -1, read_tile = -1;  // The blocks of the last store and load, or -1.
    int16_t write_part = -1, write_thread = -1;
    int16_t read_part = -1, read_thread = -1;
    bool read_by_tiles = false;    // Several blocks have read the byte.
    bool read_by_threads = false;  // Several threads of read_tile have read the byte in read_part.
  };
  static constexpr uintptr_t kPageBytes = 1024;
  using Page = std::array<Shadow, kPageBytes>;
  enum class Role { kOperand, kResult, kScratch, kShared };
  struct Buffer {
    uintptr_t begin = 0, end = 0;
    Role role = Role::kScratch;
    int64_t number = 0;           // The number of the operand or the result.
    bool is_initialized = false;  // True if the kernel may read the buffer before it writes it.

    std::string Name() const;
  };

  void AddBuffer(size_t argument, uintptr_t address, int64_t bytes, Role role);
  void Part(const char* kernel, int64_t tile, int64_t part);
  // Returns the address that the access must use.
  void* Access(uintptr_t address, int64_t bytes, bool is_store, int64_t argument, int64_t thread);
  // The argument whose buffer contains the address, or -1.
  int64_t FindBuffer(uintptr_t address) const;
  void Check(const Buffer& buffer, uintptr_t byte, bool is_store, int16_t thread);
  void CheckRace(const Shadow& shadow, bool is_store, int16_t thread);
  void CheckResults();
  void Count(uintptr_t begin, uintptr_t end, bool is_store, int64_t thread);
  void CountTraffic();
  Shadow& ShadowOf(uintptr_t byte);
  // Sets the error if there is none yet.
  void Fail(AccessError error, const std::string& message);
  std::string At(int64_t thread) const;

  LaunchReport report_;
  int32_t tile_ = 0;
  int16_t part_ = 0;
  std::vector<Buffer> buffers_;  // One per argument of the kernel.
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  struct Recent {
    uintptr_t number = 0;
    Page* page = nullptr;
  };
  std::array<Recent, 64> recent_;
  std::vector<std::byte> elsewhere_;  // Memory for accesses outside of buffers.
  // The sectors that the current part has accessed. Each entry combines the number of the warp and of the sector.
  struct Sectors {
    std::unordered_set<uint64_t> all;
    uint64_t last = 0;  // The entry that was added last.
  };
  Sectors loaded_, stored_;
};

}  // namespace xlad::runtime
