// Finds races between the threads of GPU kernels, and counts the bytes of global memory that kernels move.
//
// Code that is compiled for gpu_sim_checked reports each access of global and shared memory
// (compiler/codegen/nvptx/host_threads.h). Two accesses of one byte by different threads, of which one is a store, are
// a race unless a barrier orders them: the threads must be in one block and the accesses in different parts of the
// kernel. Nothing orders different blocks. Because every access is compared, a race is found even if the
// order in which the CPU runs the threads gives the right result.
//
// Traffic is counted as a GPU moves it: in sectors of 32 bytes. A sector that several threads of a warp (32 threads)
// access in one part of the kernel is moved once, because it stays in the cache for that time.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "absl/types/span.h"
#include "runtime/devices/cpu/object_loader.h"

namespace xlad::runtime {

// What happened in one launch of a kernel.
struct LaunchReport {
  std::string kernel;
  std::string race;          // The first race, or empty.
  int64_t loaded_bytes = 0;  // Bytes of global memory.
  int64_t stored_bytes = 0;
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
    int64_t write_tile = -1, write_part = -1, write_thread = -1;
    int64_t read_tile = -1, read_part = -1, read_thread = -1;
    bool read_by_tiles = false;    // By several blocks.
    bool read_by_threads = false;  // By several threads of read_tile in read_part.
  };
  void Part(const char* kernel, int64_t tile, int64_t part);
  void Access(uintptr_t address, int64_t bytes, bool is_store, bool is_shared, int64_t thread);
  void Check(Shadow& shadow, bool is_store, bool is_shared, int64_t thread);
  void Report(const Shadow& shadow, bool is_store, int64_t thread);
  void CountTraffic();

  LaunchReport report_;
  int64_t tile_ = 0, part_ = 0;
  std::unordered_map<uintptr_t, Shadow> global_, shared_;
  // Sectors of the part that is running: the number of the warp and of the sector.
  std::unordered_set<uint64_t> loaded_, stored_;
};

}  // namespace xlad::runtime
