// Kernels: one HLO instruction, or a fusion of many, as one LLVM function on buffers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/codegen/llvm/elements.h"
#include "compiler/codegen/llvm/tiling.h"
#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {

// A function of the object file, and the kernel of base/kernel_abi.h that calls it for each tile. The function has the
// signature i32 (one ptr for each argument, ptr scratch, ptr api, i64 tile).
struct EmittedFunction {
  llvm::Function* body = nullptr;  // Null if another object defines the kernel.
  int64_t arguments = 0;
  EmittedKernel facts;
  llvm::Function* entry = nullptr;  // Set by the object emitter.
};

// An output of a kernel: leaf `leaf` of `instruction` is written to `array`.
struct Output {
  const hlo::Instruction* instruction;
  int leaf;
  ArrayView array;
  bool in_place;  // The array shares its memory with an operand.
};

// A kernel under construction. The emitters of opcodes append code to it.
class KernelContext {
 public:
  // `scratch` and `tile` are arguments of the function. `wanted_tiles` is that of KernelRequest.
  KernelContext(Ir* ir, llvm::Value* scratch, llvm::Value* tile, int64_t wanted_tiles)
      : ir_(*ir), elements_(ir), scratch_(scratch), tile_(tile), wanted_tiles_(wanted_tiles) {}

  Ir& ir() { return ir_; }
  Elements& elements() { return elements_; }
  std::vector<Output>& outputs() { return outputs_; }

  int64_t wanted_tiles() const { return wanted_tiles_; }
  // Divides the kernel into tiles. Must be called at most once and before any code is emitted. After the call, the
  // emitter must compute only the positions in `range()`.
  void Divide(const Tiling& tiling);
  const TileRange& range() const { return range_; }
  int64_t tiles() const { return range_.is_whole() ? 1 : range_.thread != nullptr ? blocks_ : range_.tiling.tiles(); }

  // The size of the CPU's vector registers, or 0 if the emitter must not use vectors, as in all kernels for GPUs.
  void SetVectorBytes(int64_t bytes) { vector_bytes_ = bytes; }
  int64_t vector_bytes() const { return vector_bytes_; }
  bool has_vectors() const { return vector_bytes_ > 0; }

  // If the kernel is a product of matrices that has a kernel schedule, the blocks of this schedule, otherwise null.
  void SetBlocks(const ProductBlocks* blocks) { schedule_blocks_ = blocks; }
  const ProductBlocks* blocks() const { return schedule_blocks_; }

  // On a GPU a tile is a block of threads, and `thread` is the number of this thread in its block. If SetThread is not
  // called, as on a CPU, one thread computes a tile.
  void SetThread(llvm::Value* thread) { thread_ = thread; }
  bool has_threads() const { return thread_ != nullptr; }
  // Makes one thread compute the whole kernel. Called instead of the functions that divide the kernel.
  void UseOneThread() {
    thread_ = nullptr;
    wanted_tiles_ = 1;
  }
  // Called instead of Divide. Uses one thread for each of `positions` positions. After the call, ForPositions and
  // ForLinear (tiling.h) compute the position whose number is that of the thread. A thread with a higher number than
  // the last position computes nothing.
  void DivideThreads(int64_t positions);
  // Called instead of Divide. Uses `tiles` blocks of `threads` threads. The emitter divides the work by tile() and
  // thread().
  void DivideBlocks(int64_t tiles, int64_t threads);
  int64_t threads() const { return threads_; }
  llvm::Value* tile() const { return tile_; }
  llvm::Value* thread() const { return thread_; }

  // Reserves scratch memory: Scratch for all tiles together, ScratchOfTile for each tile separately.
  ArrayView Scratch(const tensor::Shape& shape);
  ArrayView ScratchOfTile(const tensor::Shape& shape);
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  Ir& ir_;
  Elements elements_;
  llvm::Value* scratch_;
  llvm::Value* tile_;
  int64_t wanted_tiles_;
  TileRange range_;
  std::vector<Output> outputs_;
  int64_t scratch_bytes_ = 0;
  llvm::Value* thread_ = nullptr;
  int64_t threads_ = 1;  // The size of a block.
  int64_t blocks_ = 1;
  int64_t vector_bytes_ = 0;
  const ProductBlocks* schedule_blocks_ = nullptr;
};

// Emitters of opcodes that are the only instruction of a kernel or the root of its fusion. A kernel with a kernel
// schedule is emitted by EmitNest instead, unless it is a product of matrices. All other kernels without such an
// emitter are emitted by EmitLoops. `root` is the instruction; its operands are bound in `kernel`.
using KernelRule = void (*)(KernelContext& kernel, const hlo::Instruction& root);
KernelRule FindKernelRule(hlo::Opcode opcode);  // Null if the opcode has no rule.

void EmitDynamicUpdateSlice(KernelContext& kernel, const hlo::Instruction& root);
void EmitScatter(KernelContext& kernel, const hlo::Instruction& root);
void EmitSort(KernelContext& kernel, const hlo::Instruction& root);
void EmitTopk(KernelContext& kernel, const hlo::Instruction& root);
void EmitSelectAndScatter(KernelContext& kernel, const hlo::Instruction& root);
void EmitScan(KernelContext& kernel, const hlo::Instruction& root);
void EmitTranspose(KernelContext& kernel, const hlo::Instruction& root);
void EmitDot(KernelContext& kernel, const hlo::Instruction& root);  // Dots that are not library ops.
void EmitRaggedDotKernel(KernelContext& kernel, const hlo::Instruction& root);
void EmitConvolution(KernelContext& kernel, const hlo::Instruction& root);  // Convolutions that are not library ops.
void EmitCholesky(KernelContext& kernel, const hlo::Instruction& root);
void EmitTriangularSolve(KernelContext& kernel, const hlo::Instruction& root);
void EmitBatchNorm(KernelContext& kernel, const hlo::Instruction& root);  // batch-norm-training, -inference and -grad.
void EmitRngBitGenerator(KernelContext& kernel, const hlo::Instruction& root);

struct SharedMemory;
// The rule of an opcode that blocks of threads compute in parts on a GPU. No thread of a block computes a part before
// all threads of the block have computed the previous part (compiler/codegen/nvptx/thread_kernel.h).
struct BlockRule {
  int (*parts)(const hlo::Instruction& root);
  void (*emit)(KernelContext& kernel, const hlo::Instruction& root, int part, SharedMemory* shared);
};
const BlockRule* FindBlockRule(hlo::Opcode opcode);  // Null if the opcode has no such rule.

int BlockSortParts(const hlo::Instruction& root);  // For sort and topk.
void EmitBlockSort(KernelContext& kernel, const hlo::Instruction& root, int part, SharedMemory* shared);
int BatchNormParts(const hlo::Instruction& root);
void EmitBatchNormPart(KernelContext& kernel, const hlo::Instruction& root, int part, SharedMemory* shared);

// Emits `body` for positions 0 .. count-1, which are distributed over the threads of a block round-robin.
void ForBlock(KernelContext& kernel, int64_t count, const std::function<void(llvm::Value* position)>& body);

// All reductions that the outputs need, in groups. One pass over the operands computes a group: its operands have equal
// sizes, and its reductions have equal dimensions. A group comes after the groups on which it depends.
using ReductionGroups = std::vector<std::vector<const hlo::Instruction*>>;
ReductionGroups GroupReductions(KernelContext& kernel);

// Whether every reduction is local, that is, needed only at the position of its own result. If so, one thread can
// compute everything for a position.
bool ReductionsAreLocal(KernelContext& kernel);

// Computes all outputs by element rules: reductions first, then the rest, in one loop for each number of elements.
void EmitLoops(KernelContext& kernel);
// Emits code that writes every element of leaf `leaf` of `instruction` to `array`.
void EmitArray(KernelContext& kernel, const hlo::Instruction* instruction, int leaf, const ArrayView& array);

// A function that computes a kernel or a part of a kernel. It has the arguments of EmittedFunction::body, and then
// arguments of the types `more`. Operands and outputs are bound in `context`. The caller emits the code and the return.
struct KernelFunction {
  llvm::Function* function = nullptr;
  int64_t arguments = 0;            // The number of pointers to operand and result leaves.
  std::vector<ArrayView> operands;  // The operand leaves.
  std::unique_ptr<Ir> ir;
  std::unique_ptr<KernelContext> context;

  llvm::Argument* Additional(size_t i) const;
};
// Unimplemented if CanEmit is false. InvalidArgument if an in-place pair names a leaf that does not exist.
absl::StatusOr<KernelFunction> OpenKernelFunction(llvm::Module* module, const KernelRequest& request,
                                                  const std::string& name, const std::vector<llvm::Type*>& more);
// The instruction whose opcode decides how a kernel is emitted: the root of its fusion, or the instruction itself.
const hlo::Instruction* InnerRoot(const KernelFunction& kernel, const KernelRequest& request);

// Emits a complete kernel. `vector_bytes` is that of KernelContext.
absl::StatusOr<EmittedFunction> EmitKernelFunction(llvm::Module* module, const KernelRequest& request,
                                                   int64_t vector_bytes);

}  // namespace xlad::compiler
