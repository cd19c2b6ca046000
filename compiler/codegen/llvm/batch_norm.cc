// batch-norm-training, -inference and -grad, with sums in f64.
//
// A feature is computed in parts: sums of the elements, then numbers that follow from the sums, then results. On a CPU,
// one thread computes the parts one after the other. On a GPU, a block of threads computes a feature.
#include <algorithm>

#include "base/rounding.h"
#include "compiler/codegen/llvm/arithmetic.h"
#include "compiler/codegen/llvm/kernel.h"
#include "compiler/codegen/llvm/nest.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::Dims;

class BatchNorm {
 public:
  // `shared` is null on a CPU.
  BatchNorm(KernelContext* kernel, const Instruction& root, SharedMemory* shared)
      : kernel_(*kernel),
        ir_(kernel->ir()),
        b_(ir_.b),
        root_(root),
        wide_(&ir_, root.operand(0)->shape().type()),
        dims_(root.operand(0)->shape().dims()),
        feature_dim_(static_cast<size_t>(root.attributes().feature_index)),
        in_block_(shared != nullptr) {
    constexpr int64_t kWarp = 32, kMaxThreads = 256;
    rest_ = dims_;
    rest_[feature_dim_] = 1;
    const int64_t elements = tensor::Product(rest_);
    count_ = wide_.Number(static_cast<double>(elements));
    const int64_t threads = std::min(kMaxThreads, RoundUp(std::max<int64_t>(elements, 1), kWarp));
    if (in_block_) kernel_.DivideBlocks(std::max<int64_t>(1, features()), threads);
    for (llvm::Value*& sum : sums_) sum = Place(shared, threads);
    for (llvm::Value*& number : numbers_) number = Place(shared, 1);
  }

  int64_t features() const { return dims_[feature_dim_]; }

  void EmitPart(llvm::Value* feature, int part) {
    feature_ = feature;
    switch (root_.opcode()) {
      case Opcode::kBatchNormTraining:
        return Training(part);
      case Opcode::kBatchNormInference:
        return Normalize(Of(3), Of(4));
      default:
        return Gradient(part);
    }
  }

 private:
  void Training(int part) {
    switch (part) {
      case 0:
        return AddUp(0, [&](const Index& index) { return At(0, index); });
      case 1:
        return ByFirstThread([&] { Store(1, Index::Of({feature_}), SetNumber(0, Mean(Total(0)))); });
      case 2:
        return AddUp(0, [&](const Index& index) {
          llvm::Value* distance = b_.CreateFSub(At(0, index), Number(0));
          return b_.CreateFMul(distance, distance);
        });
      case 3:
        return ByFirstThread([&] { Store(2, Index::Of({feature_}), SetNumber(1, Mean(Total(0)))); });
      default:
        return Normalize(Number(0), Number(1));
    }
  }

  // (x - mean) * scale / deviation + offset
  void Normalize(llvm::Value* mean, llvm::Value* variance) {
    llvm::Value* factor = b_.CreateFMul(InverseDeviation(variance), Of(1));
    llvm::Value* offset = Of(2);
    ForEachElement([&](const Index& index) {
      llvm::Value* centered = b_.CreateFSub(At(0, index), mean);
      Store(0, index, b_.CreateFAdd(b_.CreateFMul(centered, factor), offset));
    });
  }

  void Gradient(int part) {
    llvm::Value* mean = Of(2);
    llvm::Value* inverse = InverseDeviation(Of(3));
    const auto normal = [&](const Index& index) { return b_.CreateFMul(b_.CreateFSub(At(0, index), mean), inverse); };
    switch (part) {
      case 0:
        AddUp(0, [&](const Index& index) { return At(4, index); });
        return AddUp(1, [&](const Index& index) { return b_.CreateFMul(At(4, index), normal(index)); });
      case 1:
        return ByFirstThread([&] {
          Store(1, Index::Of({feature_}), SetNumber(1, Total(1)));
          Store(2, Index::Of({feature_}), SetNumber(0, Total(0)));
        });
      default: {
        llvm::Value* mean_gradient = Mean(Number(0));
        llvm::Value* mean_product = Mean(Number(1));
        llvm::Value* scale = Of(1);
        return ForEachElement([&](const Index& index) {
          llvm::Value* rest = b_.CreateFSub(At(4, index), mean_gradient);
          rest = b_.CreateFSub(rest, b_.CreateFMul(normal(index), mean_product));
          Store(0, index, b_.CreateFMul(b_.CreateFMul(scale, inverse), rest));
        });
      }
    }
  }

  // An element of operand `i`, as f64.
  llvm::Value* At(int64_t i, const Index& index) {
    const Instruction* operand = root_.operand(i);
    return Wide(&ir_, operand->shape().type()).FromNarrow(kernel_.elements().Emit(operand, index));
  }
  // The feature's element of operand `i`, which has one element for each feature, as f64.
  llvm::Value* Of(int64_t i) { return At(i, Index::Of({feature_})); }

  void ForEachElement(const std::function<void(const Index&)>& body) {
    const auto at = [&](Values dims) {
      dims[feature_dim_] = feature_;
      body(Index::Of(std::move(dims)));
    };
    if (!in_block_) return ir_.LoopNest(rest_, at);
    ForBlock(kernel_, tensor::Product(rest_),
             [&](llvm::Value* element) { at(DimsOf(ir_, Index::OfLinear(element), rest_)); });
  }

  // Computes the sum of f over the elements of this thread.
  void AddUp(size_t sum, const std::function<llvm::Value*(const Index&)>& f) {
    llvm::Value* slot = ir_.Slot(b_.getDoubleTy());
    b_.CreateStore(wide_.Number(0), slot);
    ForEachElement([&](const Index& index) {
      llvm::Value* term = f(index);
      b_.CreateStore(b_.CreateFAdd(b_.CreateLoad(b_.getDoubleTy(), slot), term), slot);
    });
    b_.CreateStore(b_.CreateLoad(b_.getDoubleTy(), slot), SumOf(sum, in_block_ ? kernel_.thread() : ir_.I64(0)));
  }
  // The sum over all threads.
  llvm::Value* Total(size_t sum) {
    llvm::Value* slot = ir_.Slot(b_.getDoubleTy());
    b_.CreateStore(b_.CreateLoad(b_.getDoubleTy(), SumOf(sum, ir_.I64(0))), slot);
    ir_.Loop(in_block_ ? kernel_.threads() - 1 : 0, [&](llvm::Value* other) {
      llvm::Value* partial = b_.CreateLoad(b_.getDoubleTy(), SumOf(sum, ir_.Add(other, ir_.I64(1))));
      b_.CreateStore(b_.CreateFAdd(b_.CreateLoad(b_.getDoubleTy(), slot), partial), slot);
    });
    return b_.CreateLoad(b_.getDoubleTy(), slot);
  }
  void ByFirstThread(const std::function<void()>& body) {
    if (!in_block_) return body();
    ir_.If(b_.CreateICmpEQ(kernel_.thread(), ir_.I64(0)), body);
  }

  llvm::Value* Mean(llvm::Value* sum) { return b_.CreateFDiv(sum, count_); }
  // 1 / sqrt(variance + epsilon)
  llvm::Value* InverseDeviation(llvm::Value* variance) {
    const double epsilon = static_cast<double>(root_.attributes().epsilon);
    return b_.CreateFDiv(wide_.Number(1), wide_.Sqrt(b_.CreateFAdd(variance, wide_.Number(epsilon))));
  }

  void Store(size_t output, const Index& index, llvm::Value* value) {
    const ArrayView& array = kernel_.outputs()[output].array;
    StoreTo(ir_, array, index, Wide(&ir_, array.shape.type).ToNarrow(value));
  }

  // Allocates memory for `count` numbers of the feature.
  llvm::Value* Place(SharedMemory* shared, int64_t count) {
    return in_block_ ? shared->Place(ir_, b_.getDoubleTy(), count) : ir_.Slot(b_.getDoubleTy());
  }
  llvm::Value* SumOf(size_t sum, llvm::Value* thread) { return ir_.Address(b_.getDoubleTy(), sums_[sum], thread); }
  llvm::Value* SetNumber(size_t i, llvm::Value* value) {
    b_.CreateStore(value, numbers_[i]);
    return value;
  }
  llvm::Value* Number(size_t i) { return b_.CreateLoad(b_.getDoubleTy(), numbers_[i]); }

  KernelContext& kernel_;
  Ir& ir_;
  IrBuilder& b_;
  const Instruction& root_;
  Wide wide_;
  Dims dims_;
  size_t feature_dim_;
  const bool in_block_;
  Dims rest_;
  llvm::Value* count_;
  llvm::Value* feature_ = nullptr;
  llvm::Value* sums_[2];     // For each thread, the sum of its elements.
  llvm::Value* numbers_[2];  // Numbers that are computed from the sums and that all threads read.
};

}  // namespace

int BatchNormParts(const Instruction& root) {
  if (root.opcode() == Opcode::kBatchNormInference) return 1;
  return root.opcode() == Opcode::kBatchNormTraining ? 5 : 3;
}

void EmitBatchNormPart(KernelContext& kernel, const Instruction& root, int part, SharedMemory* shared) {
  BatchNorm norm(&kernel, root, shared);
  if (norm.features() > 0) norm.EmitPart(kernel.tile(), part);
}

void EmitBatchNorm(KernelContext& kernel, const Instruction& root) {
  BatchNorm norm(&kernel, root, nullptr);
  kernel.ir().Loop(norm.features(), [&](llvm::Value* feature) {
    for (int part = 0; part < BatchNormParts(root); ++part) norm.EmitPart(feature, part);
  });
}

}  // namespace xlad::compiler
