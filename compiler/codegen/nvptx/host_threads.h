// Converts a module of GPU kernels (thread_kernel.h) to a module for a CPU.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace llvm {
class Module;
}  // namespace llvm

namespace xlad::compiler {

// Damage to a module, for tests of the checking mode (docs/decisions/0036-mutants-of-gpu-kernels.md). One barrier is
// removed, or the index of one load or store is changed in all threads.
struct Mutation {
  enum class Kind {
    kNone,
    // Each thread computes the parts before and after the barrier without waiting for the other threads.
    kNoBarrier,
    kNextElement,  // The access is to the next element.
    kNextLane,     // The access is to the element that the next thread would access.
  };
  Kind kind = Kind::kNone;
  // The number of the barrier or access, counted over the barriers or accesses of this kind in the module.
  int64_t number = 0;
};

// The numbers of places of a module that each kind of mutation could damage.
struct Places {
  int64_t barriers = 0;
  int64_t accesses = 0;       // Loads and stores of global and shared memory.
  int64_t lane_accesses = 0;  // The accesses whose address depends on the thread.
};

struct HostOptions {
  // Whether code calls these functions, which runtime/devices/gpu_sim/access_checker.cc defines:
  //   void xlad_gpu_buffer(int32_t buffer, const void* address, int64_t bytes, int32_t role)
  //     at the beginning of a kernel, for each operand, for each result, for scratch and for shared memory
  //   void xlad_gpu_part(const char* kernel, int64_t tile, int64_t part)
  //     before the threads of a block compute a part
  //   void* xlad_gpu_access(void* address, int64_t bytes, int32_t is_store, int32_t buffer, int64_t thread)
  //     before each access to global or shared memory, which then uses the returned address. `buffer` is -1 if the
  //     address does not determine it
  bool check = false;

  Mutation mutation;
  bool descending = false;   // Whether the threads of a block run from the last to the first.
  Places* places = nullptr;  // If not null, set to the numbers of places that could be damaged.
  bool quick = false;        // Whether the code is compiled quickly (CodeGenerator::Simplify), for a few short runs.
};

// Replaces every kernel @S with a function of base/kernel_abi.h. The function computes the blocks of its tiles one
// after the other, with one loop over the threads of the block for each part. A barrier needs no code, because all
// threads have finished a part before the next part begins. NVVM's intrinsics become
//
//   llvm.nvvm.read.ptx.sreg.tid.x    the iteration of the loop over threads
//   llvm.nvvm.read.ptx.sreg.ctaid.x  the tile
//   llvm.nvvm.barrier0               nothing, between the loops
//   shared memory (address space 3)  memory on the stack of the CPU thread that computes the block
//
// Internal if the module does not have the form that thread_kernel.h describes.
absl::Status ReplaceThreadsByLoops(llvm::Module& module, const HostOptions& options);

}  // namespace xlad::compiler
