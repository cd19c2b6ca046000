// Kernels: one HLO instruction, or a fusion of many, as one LLVM function on buffers.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/llvm/elements.h"
#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {

// A function of the object file with the signature i32 (one ptr for each argument, ptr scratch, ptr api).
struct EmittedFunction {
  llvm::Function* body = nullptr;
  int64_t arguments = 0;
  int64_t scratch_bytes = 0;
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
  KernelContext(Ir* ir, llvm::Value* scratch) : ir_(*ir), elements_(ir), scratch_(scratch) {}

  Ir& ir() { return ir_; }
  Elements& elements() { return elements_; }
  std::vector<Output>& outputs() { return outputs_; }

  // Reserves scratch memory for the duration of the call.
  ArrayView Scratch(const tensor::Shape& shape);
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  Ir& ir_;
  Elements elements_;
  llvm::Value* scratch_;
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
void EmitFft(KernelContext& kernel, const hlo::Instruction& root);
void EmitBatchNorm(KernelContext& kernel, const hlo::Instruction& root);  // All three forms.
void EmitRngBitGenerator(KernelContext& kernel, const hlo::Instruction& root);

// Computes all outputs by element rules: reductions first, then one loop over the rest.
void EmitLoops(KernelContext& kernel);
// Writes every element of `instruction`'s leaf to `array`.
void EmitArray(KernelContext& kernel, const hlo::Instruction* instruction, int leaf, const ArrayView& array);

// Emits a complete kernel.
absl::StatusOr<EmittedFunction> EmitKernelFunction(llvm::Module* module, const KernelRequest& request);

}  // namespace xlad::compiler
