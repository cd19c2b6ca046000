// Finds errors in how the threads of GPU kernels access memory, and counts the bytes of global memory that they move.
//
// Code that is compiled for gpu_sim_checked reports each access of global and shared memory
// (compiler/codegen/nvptx/host_threads.h). These are errors:
//   - Races: two accesses of one byte by different threads, of which one is a store, unless a barrier orders them: the
//     threads must be in one block and the accesses in different parts of the kernel. Nothing orders different blocks.
//     Because every access is compared, a race is found even if the order in which the CPU runs the threads gives the
//     right result.
//   - Accesses outside of the buffer whose address they use, even if there is other memory. They are not done.
//   - Reads of unwritten memory: shared memory is unwritten when a block begins, scratch and results when the kernel
//     begins.
//   - Bytes of results that the kernel has not written when it ends, unless they share the memory of an operand.
//
// Traffic is counted as a GPU moves it: in sectors of 32 bytes. A sector that several threads of a warp (32 threads)
// access in one part of the kernel is moved once, because it stays in the cache for that time.
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

// What happened in one launch of a kernel.
struct LaunchReport {
  std::string kernel;
  AccessError error = AccessError::kNone;  // The first error.
  std::string message;                     // Empty if there is none.
  int64_t loaded_bytes = 0;                // Bytes of global memory.
  int64_t stored_bytes = 0;
  uint64_t trace = 0;  // A hash of all accesses, each with its block and thread, whatever their order.
};

// Between Begin and End, it records the kernel that runs on the calling thread; all tiles must run on that thread.
class AccessChecker {
 public:
  // The functions that checked code calls.
  static absl::Span<const ProvidedFunction> Functions();

  void Begin();
  LaunchReport End();

 private:
  friend struct AccessHooks;
  // The accesses of one byte, as far as they can still take part in a race.
  struct Shadow {
    int32_t write_tile = -1, read_tile = -1;  // Blocks.
    int16_t write_part = -1, write_thread = -1;
    int16_t read_part = -1, read_thread = -1;
    bool read_by_tiles = false;    // By several blocks.
    bool read_by_threads = false;  // By several threads of read_tile in read_part.
  };
  static constexpr uintptr_t kPageBytes = 1024;
  using Page = std::array<Shadow, kPageBytes>;
  enum class Role { kOperand, kResult, kScratch, kShared };
  struct Buffer {
    uintptr_t begin = 0, end = 0;
    Role role = Role::kScratch;
    int64_t number = 0;           // The number of the operand or the result.
    bool is_initialized = false;  // It may be read before the kernel has written it.

    std::string Name() const;
  };

  void AddBuffer(size_t argument, uintptr_t address, int64_t bytes, Role role);
  void Part(const char* kernel, int64_t tile, int64_t part);
  // Returns the address at which the access is done.
  void* Access(uintptr_t address, int64_t bytes, bool is_store, int64_t argument, int64_t thread);
  // The argument whose buffer has the address, or -1.
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
  std::vector<Buffer> buffers_;  // By the number of the argument.
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  struct Recent {
    uintptr_t number = 0;
    Page* page = nullptr;
  };
  std::array<Recent, 64> recent_;
  std::vector<std::byte> elsewhere_;  // Where accesses outside of buffers are done.
  // Sectors of the part that is running: the number of the warp and of the sector.
  struct Sectors {
    std::unordered_set<uint64_t> all;
    uint64_t last = 0;  // The one that was added last.
  };
  Sectors loaded_, stored_;
};

}  // namespace xlad::runtime
