// Code for scheduled kernels (compiler/kernel/kernel_schedule.h).
#pragma once

#include <optional>
#include <vector>

#include "compiler/codegen/llvm/kernel.h"
#include "compiler/kernel/kernel_schedule.h"

namespace xlad::compiler {

// Emits the loop nest of a scheduled kernel. In a context with threads, each thread computes one position of the bound
// loops. `inputs[i]` is the array of input i; the outputs are `context.outputs()`.
void EmitNest(KernelContext& context, const ScheduledKernel& kernel, const std::vector<ArrayView>& inputs);

// A scheduled kernel for blocks of threads, as a list of parts. A block computes one position of the bound loops (a
// row). Its threads are the lanes of the reductions, so that results have the same bits as with every other schedule.
// No thread of a block computes a part before all threads of the block have computed the previous part.
struct BlockPart {
  enum class Kind {
    // Loops over the columns: a thread computes the columns whose index modulo the number of lanes is the number of the
    // thread.
    kLoop,
    kCombine,  // Combines partial results of `nodes`: thread i < half combines those of the threads i and i + half.
    kSingle,   // The first thread finishes reductions and computes values of the row.
  };
  Kind kind = Kind::kLoop;
  std::vector<NestNode> nodes;
  int64_t half = 0;
};
struct BlockForm {
  int64_t threads = 0;
  std::vector<BlockPart> parts;
};
// Nullopt if a block would have fewer than 32 threads (a warp) or more than 1,024, or if the partial results would need
// more than half of SharedMemory::kMaxBytes. Also nullopt if the schedule does not have the form of DefaultSchedule
// with tiles of one row.
std::optional<BlockForm> BlockFormOf(const ScheduledKernel& kernel);

// Memory that the threads of a block share. The parts of a kernel place the same arrays in the same order.
struct SharedMemory {
  // The bytes that a block can use on every NVIDIA GPU without further settings.
  static constexpr int64_t kMaxBytes = 48 << 10;
  llvm::Value* base = nullptr;
  int64_t bytes = 0;  // The bytes that are in use.

  // The address of `count` elements of a type, or null if they do not fit.
  llvm::Value* Place(Ir& ir, llvm::Type* type, int64_t count);
};
// Emits a part in a context with threads.
void EmitBlockPart(KernelContext& context, const ScheduledKernel& kernel, const std::vector<ArrayView>& inputs,
                   const BlockPart& part, SharedMemory* shared);

}  // namespace xlad::compiler
