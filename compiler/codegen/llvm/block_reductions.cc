#include "compiler/codegen/llvm/block_reductions.h"

#include <algorithm>
#include <utility>

#include "base/powers_of_two.h"
#include "compiler/codegen/llvm/reduction_form.h"

namespace xlad::compiler {

int BlockReduction::parts() const { return 1 + FloorLog2(threads); }

std::optional<BlockReduction> BlockReductionOf(KernelContext& kernel) {
  constexpr int64_t kMinExtent = 64, kMaxThreads = 256;
  const ReductionGroups groups = GroupReductions(kernel);
  if (groups.size() != 1 || !ReductionsAreLocal(kernel)) return std::nullopt;
  BlockReduction result;
  result.group = groups[0];
  const DimensionSplit split(result.group[0]);
  result.positions = tensor::Product(split.Sizes(split.kept));
  result.extent = tensor::Product(split.Sizes(split.reduced));
  if (split.columns || result.positions == 0 || result.extent < kMinExtent) return std::nullopt;
  for (const hlo::Instruction* instruction : result.group) {
    const Reduction reduction(instruction);
    if (reduction.leaves != 1 || reduction.reducer.Neutral(kernel.ir()) == nullptr) return std::nullopt;
  }
  for (const Output& output : kernel.outputs()) {
    if (output.array.shape.elements() != result.positions) return std::nullopt;
  }
  result.threads = std::min(kMaxThreads, PowerOfTwoAtMost(result.extent));
  // Partial results take up to 8 bytes.
  if (std::ssize(result.group) * result.threads * 8 > SharedMemory::kMaxBytes) return std::nullopt;
  return result;
}

namespace {

class BlockReducer {
 public:
  BlockReducer(KernelContext* kernel, const BlockReduction& block, SharedMemory* shared)
      : kernel_(*kernel), ir_(kernel->ir()), block_(block), split_(block.group[0]) {
    kernel_.DivideBlocks(block.positions, block.threads);
    for (const hlo::Instruction* instruction : block.group) {
      reductions_.emplace_back(instruction);
      types_.push_back(RegisterType(ir_.context(), reductions_.back().shapes[0].type));
      partial_.push_back(shared->Place(ir_, types_.back(), block.threads));
    }
  }

  // Every thread reduces its elements.
  void Reduce() {
    std::vector<Accumulators> sums;
    for (const Reduction& reduction : reductions_) {
      sums.emplace_back(&ir_, reduction.shapes).Store({reduction.reducer.Neutral(ir_)});
    }
    const Values kept = Position();
    const tensor::Dims sizes = split_.Sizes(split_.reduced);
    ForBlock(kernel_, block_.extent, [&](llvm::Value* element) {
      const Index index = split_.Join(kept, DimsOf(ir_, Index::OfLinear(element), sizes));
      for (size_t i = 0; i < reductions_.size(); ++i) {
        const Values values = reductions_[i].Operands(kernel_.elements(), index);
        sums[i].Store(reductions_[i].reducer.Combine(kernel_.elements(), sums[i].Load(), values));
      }
    });
    for (size_t i = 0; i < reductions_.size(); ++i) ir_.b.CreateStore(sums[i].Load()[0], At(i, kernel_.thread()));
  }

  void Halve(int64_t half) {
    ir_.If(ir_.b.CreateICmpULT(kernel_.thread(), ir_.I64(half)), [&] {
      for (size_t i = 0; i < reductions_.size(); ++i) {
        ir_.b.CreateStore(Sum(i, kernel_.thread(), ir_.Add(kernel_.thread(), ir_.I64(half))), At(i, kernel_.thread()));
      }
    });
  }

  // The first thread computes and writes the outputs.
  void Finish() {
    ir_.If(ir_.b.CreateICmpEQ(kernel_.thread(), ir_.I64(0)), [&] {
      Elements& elements = kernel_.elements();
      for (size_t i = 0; i < reductions_.size(); ++i) {
        const Reducer& reducer = reductions_[i].reducer;
        const Values total = {Sum(i, ir_.I64(0), ir_.I64(1))};
        llvm::Value* result = reducer.Round(ir_, reducer.Combine(elements, reductions_[i].Initial(elements), total))[0];
        elements.Bind(reductions_[i].instruction, [result](int, const Index&) { return result; });
      }
      Values values;
      const Index index = Index::OfLinear(kernel_.tile());
      for (const Output& output : kernel_.outputs()) {
        values.push_back(elements.Emit(output.instruction, index, output.leaf));
      }
      for (size_t i = 0; i < values.size(); ++i) StoreTo(ir_, kernel_.outputs()[i].array, index, values[i]);
    });
  }

 private:
  Values Position() { return DimsOf(ir_, Index::OfLinear(kernel_.tile()), split_.Sizes(split_.kept)); }
  llvm::Value* At(size_t i, llvm::Value* thread) { return ir_.Address(types_[i], partial_[i], thread); }
  llvm::Value* Sum(size_t i, llvm::Value* a, llvm::Value* b) {
    llvm::Value* x = ir_.b.CreateLoad(types_[i], At(i, a));
    llvm::Value* y = ir_.b.CreateLoad(types_[i], At(i, b));
    return reductions_[i].reducer.Combine(kernel_.elements(), {x}, {y})[0];
  }

  KernelContext& kernel_;
  Ir& ir_;
  const BlockReduction& block_;
  const DimensionSplit split_;
  std::vector<Reduction> reductions_;
  std::vector<llvm::Type*> types_;
  Values partial_;
};

}  // namespace

void EmitBlockReduction(KernelContext& kernel, const BlockReduction& reduction, int part, SharedMemory* shared) {
  BlockReducer block(&kernel, reduction, shared);
  if (part == 0) return block.Reduce();
  if (part + 1 == reduction.parts()) return block.Finish();
  block.Halve(reduction.threads >> part);
}

}  // namespace xlad::compiler
