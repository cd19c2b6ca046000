// batch-norm-training, -inference and -grad: a loop over features, with sums in f64.
#include "compiler/codegen/llvm/arithmetic.h"
#include "compiler/codegen/llvm/kernel.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::Dims;

class BatchNorm {
 public:
  BatchNorm(KernelContext* kernel, const Instruction& root)
      : kernel_(*kernel),
        ir_(kernel->ir()),
        b_(ir_.b),
        root_(root),
        wide_(&ir_, root.operand(0)->shape().type()),
        dims_(root.operand(0)->shape().dims()),
        feature_(static_cast<size_t>(root.attributes().feature_index)) {
    rest_ = dims_;
    rest_[feature_] = 1;
    count_ = wide_.Number(static_cast<double>(tensor::Product(rest_)));
  }

  void ForEachFeature(const std::function<void(llvm::Value*)>& body) { ir_.Loop(dims_[feature_], body); }

  // An element of operand `i`, as f64.
  llvm::Value* At(int64_t i, const Index& index) {
    const Instruction* operand = root_.operand(i);
    return EmitWide(operand, index);
  }
  // A feature's element of operand `i`, which has one element for each feature, as f64.
  llvm::Value* Of(int64_t i, llvm::Value* feature) { return EmitWide(root_.operand(i), Index::Of({feature})); }

  // The sum of f over the elements of a feature.
  llvm::Value* Sum(llvm::Value* feature, const std::function<llvm::Value*(const Index&)>& f) {
    llvm::Value* slot = ir_.Slot(b_.getDoubleTy());
    b_.CreateStore(wide_.Number(0), slot);
    ForEachElement(feature, [&](const Index& index) {
      llvm::Value* term = f(index);
      b_.CreateStore(b_.CreateFAdd(b_.CreateLoad(b_.getDoubleTy(), slot), term), slot);
    });
    return b_.CreateLoad(b_.getDoubleTy(), slot);
  }

  void ForEachElement(llvm::Value* feature, const std::function<void(const Index&)>& body) {
    ir_.LoopNest(rest_, [&](const Values& at) {
      Values dims = at;
      dims[feature_] = feature;
      body(Index::Of(dims));
    });
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

 private:
  llvm::Value* EmitWide(const Instruction* operand, const Index& index) {
    return Wide(&ir_, operand->shape().type()).FromNarrow(kernel_.elements().Emit(operand, index));
  }

  KernelContext& kernel_;
  Ir& ir_;
  IrBuilder& b_;
  const Instruction& root_;
  Wide wide_;
  Dims dims_;
  size_t feature_;
  Dims rest_;
  llvm::Value* count_;
};

// (x - mean) * scale / deviation + offset
void Normalize(BatchNorm& norm, IrBuilder& b, llvm::Value* feature, llvm::Value* mean, llvm::Value* variance) {
  llvm::Value* factor = b.CreateFMul(norm.InverseDeviation(variance), norm.Of(1, feature));
  llvm::Value* offset = norm.Of(2, feature);
  norm.ForEachElement(feature, [&](const Index& index) {
    llvm::Value* centered = b.CreateFSub(norm.At(0, index), mean);
    norm.Store(0, index, b.CreateFAdd(b.CreateFMul(centered, factor), offset));
  });
}

void Training(BatchNorm& norm, IrBuilder& b, llvm::Value* feature) {
  llvm::Value* mean = norm.Mean(norm.Sum(feature, [&](const Index& index) { return norm.At(0, index); }));
  llvm::Value* variance = norm.Mean(norm.Sum(feature, [&](const Index& index) {
    llvm::Value* distance = b.CreateFSub(norm.At(0, index), mean);
    return b.CreateFMul(distance, distance);
  }));
  norm.Store(1, Index::Of({feature}), mean);
  norm.Store(2, Index::Of({feature}), variance);
  Normalize(norm, b, feature, mean, variance);
}

void Gradient(BatchNorm& norm, IrBuilder& b, llvm::Value* feature) {
  llvm::Value* scale = norm.Of(1, feature);
  llvm::Value* mean = norm.Of(2, feature);
  llvm::Value* inverse = norm.InverseDeviation(norm.Of(3, feature));
  const auto normal = [&](const Index& index) { return b.CreateFMul(b.CreateFSub(norm.At(0, index), mean), inverse); };
  llvm::Value* sum = norm.Sum(feature, [&](const Index& index) { return norm.At(4, index); });
  llvm::Value* product =
      norm.Sum(feature, [&](const Index& index) { return b.CreateFMul(norm.At(4, index), normal(index)); });
  norm.Store(1, Index::Of({feature}), product);
  norm.Store(2, Index::Of({feature}), sum);
  llvm::Value* mean_gradient = norm.Mean(sum);
  llvm::Value* mean_product = norm.Mean(product);
  norm.ForEachElement(feature, [&](const Index& index) {
    llvm::Value* rest = b.CreateFSub(norm.At(4, index), mean_gradient);
    rest = b.CreateFSub(rest, b.CreateFMul(normal(index), mean_product));
    norm.Store(0, index, b.CreateFMul(b.CreateFMul(scale, inverse), rest));
  });
}

}  // namespace

void EmitBatchNorm(KernelContext& kernel, const Instruction& root) {
  BatchNorm norm(&kernel, root);
  IrBuilder& b = kernel.ir().b;
  norm.ForEachFeature([&](llvm::Value* feature) {
    switch (root.opcode()) {
      case Opcode::kBatchNormTraining:
        return Training(norm, b, feature);
      case Opcode::kBatchNormInference:
        return Normalize(norm, b, feature, norm.Of(3, feature), norm.Of(4, feature));
      default:
        return Gradient(norm, b, feature);
    }
  });
}

}  // namespace xlad::compiler
