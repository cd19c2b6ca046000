// Kernels: one HLO instruction, or a fusion of many, as one LLVM function on buffers.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/llvm/elements.h"
#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {

// A function of the object: i32 (one ptr for each argument, ptr scratch, ptr api).
struct EmittedFunction {
  llvm::Function* body = nullptr;
  int64_t arguments = 0;
  int64_t scratch_bytes = 0;
};

// What a kernel writes: leaf `leaf` of `instruction` to `array`.
struct Output {
  const hlo::Instruction* instruction;
  int leaf;
  ArrayView array;
  bool in_place;  // The array is also an operand.
};

// A kernel under construction, for the emitters of single opcodes.
class KernelContext {
 public:
  KernelContext(Ir* ir, llvm::Value* scratch) : ir_(*ir), elements_(ir), scratch_(scratch) {}

  Ir& ir() { return ir_; }
  Elements& elements() { return elements_; }
  std::vector<Output>& outputs() { return outputs_; }

  // Memory of its own for the time of the call.
  ArrayView Scratch(const tensor::Shape& shape);
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  Ir& ir_;
  Elements elements_;
  llvm::Value* scratch_;
  std::vector<Output> outputs_;
  int64_t scratch_bytes_ = 0;
};

// Opcodes that make a kernel of their own (as the root, alone or of a fusion); everything else goes through
// EmitLoops. `root` is the instruction, with its operands bound in `kernel`.
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

// The whole kernel.
absl::StatusOr<EmittedFunction> EmitKernelFunction(llvm::Module* module, const KernelRequest& request);

}  // namespace xlad::compiler
