// Kernels for a GPU, as functions of an LLVM module with NVVM's intrinsics.
//
// A kernel S is a function @S that a grid of blocks executes, and a list of parts, @S.part0, @S.part1, ..., which it
// calls one after the other. No thread of a block executes a part before all threads of the block have executed the
// previous part:
//
//   define void @S(ptr %operand, ..., ptr %result, ..., ptr %scratch, ptr %api) {
//     %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
//     %tile = zext i32 %block to i64
//     call i32 @S.part0(ptr %operand, ..., ptr %api, i64 %tile, ptr addrspacecast (@S.shared to ptr))
//     call void @llvm.nvvm.barrier0()
//     call i32 @S.part1(...)
//     ret void
//   }
//
// A block is a tile of base/kernel_abi.h. A part gets only the tile's number and the arguments, and reads results of
// previous parts from shared and global memory. Therefore the same module is code for a GPU (PTX) and, with loops over
// the threads, for a CPU (host_threads.h).
#pragma once

#include <string>

#include "compiler/kernel/object_emitter.h"

namespace llvm {
class Module;
}  // namespace llvm

namespace xlad::compiler {

// The attribute of a kernel's function that holds the number of threads of a block.
inline constexpr char kThreadsAttribute[] = "xlad-threads";
// The numbers of results and of bytes of scratch. Sizes of operands and results are attributes of the parts' arguments.
inline constexpr char kResultsAttribute[] = "xlad-results";
inline constexpr char kScratchAttribute[] = "xlad-scratch";
// Precedes the number of a part in its name.
inline constexpr char kPartSuffix[] = ".part";
// The maximum number of arguments of a kernel: PTX limits arguments to 4,096 bytes.
inline constexpr int64_t kMaxArguments = 510;

// Adds a kernel to the module. Results have the same bits as on a CPU, except that columns, and rows that are not in
// row form, may be summed in another order. The opcode determines how the work is divided:
//   - one thread for each position: fusions, reductions of columns and of short rows, random bits
//   - one thread for each row, or for each index of the dimensions without windows or indices: scans by elementwise
//     bodies, scatter, select-and-scatter, kernels in row form for which BlockFormOf returns nullopt
//   - one block for each row: other kernels in row form (the threads are the lanes of the reductions), reductions of
//     long rows, sort, topk
//   - one block for each feature: batch norms
//   - blocks that move tiles through shared memory: transposes
//   - one thread for everything: linear algebra, other scans, fusions that read reductions at other positions
// Errors are those of ObjectEmitter::EmitKernel, and Unimplemented if there are more than kMaxArguments arguments.
absl::StatusOr<EmittedKernel> EmitThreadKernel(llvm::Module* module, const KernelRequest& request);

}  // namespace xlad::compiler
