// Kernels: one HLO instruction, or a fusion of many, as one LLVM function on buffers.
#pragma once

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
  int64_t tiles() const { return range_.is_whole() ? 1 : range_.tiling.tiles(); }

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

// Computes all outputs by element rules: reductions first, then one loop over the rest.
void EmitLoops(KernelContext& kernel);
// Writes every element of `instruction`'s leaf to `array`.
void EmitArray(KernelContext& kernel, const hlo::Instruction* instruction, int leaf, const ArrayView& array);

// Emits a complete kernel.
absl::StatusOr<EmittedFunction> EmitKernelFunction(llvm::Module* module, const KernelRequest& request);

}  // namespace xlad::compiler
