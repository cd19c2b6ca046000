// Turns a module of GPU kernels (thread_kernel.h) into one for a CPU.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace llvm {
class Module;
}  // namespace llvm

namespace xlad::compiler {

// Damage to a module, which tests of the checking mode do (docs/decisions/0036-mutants-of-gpu-kernels.md): one barrier
// is removed, or one load or store, in all threads, has another index.
struct Mutation {
  enum class Kind {
    kNone,
    kNoBarrier,    // Threads do not wait: each computes the parts before and after the barrier without the others.
    kNextElement,  // The access is to the next element.
    kNextLane,     // The access is to the element that the next thread would access.
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;  // The number of the barrier or access among those of its kind in the module.
};

// How many places of a module each kind of mutation could damage.
struct Places {
  int64_t barriers = 0;
  int64_t accesses = 0;       // Loads and stores of global and shared memory.
  int64_t lane_accesses = 0;  // Those whose address depends on the thread.
};

struct HostOptions {
  // Code calls these functions of runtime/devices/gpu_sim/access_checker.h:
  //   void xlad_gpu_buffer(int32_t buffer, const void* address, int64_t bytes, int32_t role)
  //     at the beginning of a kernel, for each operand, for each result, for scratch and for shared memory
  //   void xlad_gpu_part(const char* kernel, int64_t tile, int64_t part)
  //     before the threads of a block compute a part
  //   void* xlad_gpu_access(void* address, int64_t bytes, int32_t is_store, int32_t buffer, int64_t thread)
  //     before each access of global or shared memory, which is then done at the returned address. `buffer` is -1 if
  //     the address does not show it
  bool check = false;

  Mutation mutation;
  bool descending = false;   // Threads run from the last to the first.
  Places* places = nullptr;  // Set to what could be damaged, if it is not null.
};

// Replaces every kernel @S by a function of base/kernel_abi.h. It computes the blocks of its tiles one after the other:
// a loop over the threads of the block for each part, and nothing for a barrier, because all threads have finished a
// part before the next one begins. NVVM's intrinsics become
//
//   llvm.nvvm.read.ptx.sreg.tid.x    the iteration of the loop over threads
//   llvm.nvvm.read.ptx.sreg.ctaid.x  the tile
//   llvm.nvvm.barrier0               nothing, between the loops
//   shared memory (address space 3)  memory on the stack of the CPU thread that computes the block
//
// Internal if the module has another form.
absl::Status ReplaceThreadsByLoops(llvm::Module& module, const HostOptions& options);

}  // namespace xlad::compiler
