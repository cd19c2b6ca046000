// Turns a module of GPU kernels (thread_kernel.h) into one for a CPU.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace llvm {
class Module;
}  // namespace llvm

namespace xlad::compiler {

// How many barriers and how many stores to global or shared memory the kernels of a module have.
struct Damageable {
  int64_t barriers = 0, stores = 0;
};

struct HostOptions {
  // Code calls these functions of runtime/devices/gpu_sim/access_checker.h, the first before the threads of a block
  // compute a part, and the second before each access of global or shared memory:
  //   void xlad_gpu_part(const char* kernel, int64_t tile, int64_t part)
  //   void xlad_gpu_access(const void* address, int64_t bytes, int32_t kind, int64_t thread)
  // `kind` is 1 for stores plus 2 for shared memory.
  bool check = false;

  // Damage, which tests of the checking mode do: the barrier of this number in the module is removed, and the store of
  // this number writes the next element, in all threads. -1: none.
  int64_t barrier_to_remove = -1;
  int64_t store_to_move = -1;
  Damageable* count = nullptr;  // Set to what could be damaged, if it is not null.
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
