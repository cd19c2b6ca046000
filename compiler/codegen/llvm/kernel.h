// Kernels: one HLO instruction, or a fusion of many, as one LLVM function on buffers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/codegen/llvm/elements.h"
#include "compiler/codegen/llvm/tiling.h"
#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {

// A function of the object file with the signature i32 (one ptr for each argument, ptr scratch, ptr api, i64 tile), and
// the kernel of base/kernel_abi.h that calls it for each tile.
struct EmittedFunction {
  llvm::Function* body = nullptr;
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

// A kernel under construction, which the emitters of opcodes append to.
class KernelContext {
 public:
  // `scratch` and `tile` are arguments of the function; `wanted_tiles` is as in KernelRequest.
  KernelContext(Ir* ir, llvm::Value* scratch, llvm::Value* tile, int64_t wanted_tiles)
      : ir_(*ir), elements_(ir), scratch_(scratch), tile_(tile), wanted_tiles_(wanted_tiles) {}

  Ir& ir() { return ir_; }
  Elements& elements() { return elements_; }
  std::vector<Output>& outputs() { return outputs_; }

  int64_t wanted_tiles() const { return wanted_tiles_; }
  // Divides the kernel into tiles. Called at most once, before anything is emitted, and only by an emitter that
  // computes no more than `range()` afterward.
  void Divide(const Tiling& tiling);
  const TileRange& range() const { return range_; }
  int64_t tiles() const { return range_.is_whole() ? 1 : range_.thread != nullptr ? blocks_ : range_.tiling.tiles(); }

  // On a GPU a tile is a block of threads, and `thread` is the number of this thread in its block. Without it, as on
  // a CPU, one thread computes a tile.
  void SetThread(llvm::Value* thread) { thread_ = thread; }
  bool has_threads() const { return thread_ != nullptr; }
  // One thread computes everything. Called instead of the functions that divide the kernel.
  void UseOneThread() {
    thread_ = nullptr;
    wanted_tiles_ = 1;
  }
  // Instead of Divide: one thread for each of `positions` positions. Afterward ForPositions and ForLinear (tiling.h)
  // compute the position of this thread if there are more positions than that, and nothing otherwise.
  void DivideThreads(int64_t positions);
  // Instead of Divide: `tiles` blocks of `threads` threads; the emitter divides the work by tile() and thread().
  void DivideBlocks(int64_t tiles, int64_t threads);
  int64_t threads() const { return threads_; }
  llvm::Value* tile() const { return tile_; }
  llvm::Value* thread() const { return thread_; }

  // Reserves scratch memory that all tiles share, and memory that each tile has for itself.
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
};

// Emitters of opcodes that are the only instruction of a kernel or the root of its fusion. All other kernels are
// emitted by EmitLoops. `root` is the instruction; its operands are bound in `kernel`.
using KernelRule = void (*)(KernelContext& kernel, const hlo::Instruction& root);
KernelRule FindKernelRule(hlo::Opcode opcode);

void EmitDynamicUpdateSlice(KernelContext& kernel, const hlo::Instruction& root);
void EmitScatter(KernelContext& kernel, const hlo::Instruction& root);
void EmitSort(KernelContext& kernel, const hlo::Instruction& root);
void EmitTopk(KernelContext& kernel, const hlo::Instruction& root);
void EmitSelectAndScatter(KernelContext& kernel, const hlo::Instruction& root);
void EmitScan(KernelContext& kernel, const hlo::Instruction& root);
void EmitTranspose(KernelContext& kernel, const hlo::Instruction& root);
void EmitCholesky(KernelContext& kernel, const hlo::Instruction& root);
void EmitTriangularSolve(KernelContext& kernel, const hlo::Instruction& root);
void EmitBatchNorm(KernelContext& kernel, const hlo::Instruction& root);  // All three forms.
void EmitRngBitGenerator(KernelContext& kernel, const hlo::Instruction& root);

struct SharedMemory;
// Opcodes that blocks of threads compute in parts on a GPU: all threads of a block have computed a part before any
// computes the next one (codegen/nvptx/thread_kernel.h).
struct BlockRule {
  int (*parts)(const hlo::Instruction& root);
  void (*emit)(KernelContext& kernel, const hlo::Instruction& root, int part, SharedMemory* shared);
};
const BlockRule* FindBlockRule(hlo::Opcode opcode);  // Null if there is none.

int BlockSortParts(const hlo::Instruction& root);  // sort and topk
void EmitBlockSort(KernelContext& kernel, const hlo::Instruction& root, int part, SharedMemory* shared);
int BatchNormParts(const hlo::Instruction& root);
void EmitBatchNormPart(KernelContext& kernel, const hlo::Instruction& root, int part, SharedMemory* shared);

// Emits `body` for positions 0 .. count-1, which the threads of a block take in turn.
void ForBlock(KernelContext& kernel, int64_t count, const std::function<void(llvm::Value* position)>& body);

// All reductions that the outputs need, in groups that one pass over their operands computes: equal sizes and
// dimensions. Operands come first.
using ReductionGroups = std::vector<std::vector<const hlo::Instruction*>>;
ReductionGroups GroupReductions(KernelContext& kernel);

// Whether every reduction is needed only at the position of its own result: a thread can compute a position alone.
bool ReadOwnReductions(KernelContext& kernel);

// Computes all outputs by element rules: reductions first, then one loop over the rest.
void EmitLoops(KernelContext& kernel);
// Writes every element of `instruction`'s leaf to `array`.
void EmitArray(KernelContext& kernel, const hlo::Instruction* instruction, int leaf, const ArrayView& array);

// A function that computes a kernel or a part of it, with the arguments of EmittedFunction::body and then those of
// types `more`. Operands and outputs are bound in `context`. The caller emits the code and the return.
struct KernelFunction {
  llvm::Function* function = nullptr;
  int64_t arguments = 0;            // Pointers to operand and result leaves.
  std::vector<ArrayView> operands;  // The operand leaves.
  std::unique_ptr<Ir> ir;
  std::unique_ptr<KernelContext> context;

  llvm::Argument* Additional(size_t i) const;
};
// Unimplemented if CanEmit is false, InvalidArgument for wrong in-place pairs.
absl::StatusOr<KernelFunction> OpenKernelFunction(llvm::Module* module, const KernelRequest& request,
                                                  const std::string& name, const std::vector<llvm::Type*>& more);
// The instruction whose opcode decides how a kernel is emitted: the root of its fusion, or the instruction itself.
const hlo::Instruction* InnerRoot(const KernelFunction& kernel, const KernelRequest& request);

// Emits a complete kernel.
absl::StatusOr<EmittedFunction> EmitKernelFunction(llvm::Module* module, const KernelRequest& request);

}  // namespace xlad::compiler
