#include "sharding/import/expand_batch_norm.h"

#include "hlo/attribute_keys.h"
#include "hlo/build/builder.h"
#include "tensor/indices.h"

namespace xlad::sharding {
namespace {

using hlo::Builder;
using hlo::Dims;
using hlo::ElementType;
using hlo::Instruction;
using hlo::Opcode;

// Emits the ops that replace one batch norm. They compute in f32 if the element type is narrower.
class Expander {
 public:
  Expander(Instruction* op, hlo::Module* module)
      : op_(*op), dims_(op->operand(0)->shape().dims()), builder_(op->parent()) {
    builder_.set_template(op);
    const ElementType type = op->operand(0)->shape().type();
    type_ = tensor::BitWidth(type) < 32 ? ElementType::kF32 : type;
    add_ = hlo::ScalarReducer(module, Opcode::kAdd, type_);
    for (const int64_t d : tensor::Indices(dims_)) {
      if (d != op_.attributes().feature_index) reduced_.push_back(d);
    }
  }

  // (x, scale, offset) -> (normalized, mean, variance)
  Instruction* Training() {
    Instruction* x = Operand(0);
    Instruction* mean = Mean(x);
    Instruction* centered = builder_.Binary(Opcode::kSubtract, x, PerElement(mean));
    Instruction* variance = Mean(builder_.Binary(Opcode::kMultiply, centered, centered));
    Instruction* normalized = builder_.Binary(Opcode::kDivide, centered, PerElement(Deviation(variance)));
    Instruction* scaled = builder_.Binary(Opcode::kMultiply, normalized, PerElement(Operand(1)));
    return Results({builder_.Binary(Opcode::kAdd, scaled, PerElement(Operand(2))), mean, variance});
  }

  // (x, scale, mean, variance, gradient of the output) -> (gradients of x, of scale and of offset). With n = normalized
  // x and g = gradient of the output, the gradient of x is scale / deviation * (g - mean(g) - n * mean(g * n)).
  Instruction* Gradient() {
    Instruction* gradient = Operand(4);
    Instruction* deviation = Deviation(Operand(3));
    Instruction* centered = builder_.Binary(Opcode::kSubtract, Operand(0), PerElement(Operand(2)));
    Instruction* normalized = builder_.Binary(Opcode::kDivide, centered, PerElement(deviation));
    Instruction* offset_gradient = Sum(gradient);
    Instruction* scale_gradient = Sum(builder_.Binary(Opcode::kMultiply, gradient, normalized));
    Instruction* projection = builder_.Binary(Opcode::kMultiply, normalized, PerElement(Divided(scale_gradient)));
    Instruction* without_mean = builder_.Binary(Opcode::kSubtract, gradient, PerElement(Divided(offset_gradient)));
    Instruction* orthogonal = builder_.Binary(Opcode::kSubtract, without_mean, projection);
    Instruction* multiplier = builder_.Binary(Opcode::kDivide, Operand(1), deviation);
    return Results({builder_.Binary(Opcode::kMultiply, orthogonal, PerElement(multiplier)), scale_gradient,
                    offset_gradient});
  }

 private:
  Instruction* Operand(int64_t i) { return builder_.ConvertTo(type_, op_.operand(i)); }
  // Broadcasts an array of one value per feature to the shape of x.
  Instruction* PerElement(Instruction* x) { return builder_.Broadcast(x, dims_, {op_.attributes().feature_index}); }
  Instruction* Sum(Instruction* x) { return builder_.Reduce(x, builder_.Scalar(type_, 0), reduced_, add_); }
  // Divides sums by the number of elements per feature.
  Instruction* Divided(Instruction* sum) {
    const int64_t features = dims_[op_.attributes().feature_index];
    const double count = static_cast<double>(tensor::Product(dims_)) / static_cast<double>(features);
    return builder_.Binary(Opcode::kDivide, sum, builder_.Full(sum->shape(), builder_.Scalar(type_, count)));
  }
  Instruction* Mean(Instruction* x) { return Divided(Sum(x)); }
  // sqrt(variance + epsilon)
  Instruction* Deviation(Instruction* variance) {
    Instruction* epsilon = builder_.Full(variance->shape(), builder_.Scalar(type_, op_.attributes().epsilon));
    return builder_.Unary(Opcode::kSqrt, builder_.Binary(Opcode::kAdd, variance, epsilon));
  }
  Instruction* Results(std::vector<Instruction*> results) {
    for (size_t i = 0; i < results.size(); ++i) {
      results[i] = builder_.ConvertTo(op_.shape().tuple()[i].type(), results[i]);
    }
    return builder_.Tuple(results);
  }

  const Instruction& op_;
  const Dims dims_;
  Builder builder_;
  ElementType type_;
  hlo::Computation* add_;
  Dims reduced_;
};

bool IsExpanded(const Instruction& op) {
  const bool reduces = op.opcode() == Opcode::kBatchNormTraining || op.opcode() == Opcode::kBatchNormGrad;
  return reduces && op.sharding() == nullptr && hlo::FindAttribute(op, hlo::kShardingKey) == nullptr &&
         op.operand(0)->shape().elements() > 0;
}

}  // namespace

void ExpandBatchNorms(hlo::Module* module) {
  std::vector<Instruction*> ops;
  for (const auto& computation : module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (IsExpanded(*instruction)) ops.push_back(instruction.get());
    }
  }
  for (Instruction* op : ops) {
    Expander expander(op, module);
    op->ReplaceAllUsesWith(op->opcode() == Opcode::kBatchNormTraining ? expander.Training() : expander.Gradient());
    hlo::Computation* computation = op->parent();
    computation->Remove(op);
    computation->SortTopologically();
  }
  if (!ops.empty()) module->SortComputations();  // New reducers are at the end of the module.
}

}  // namespace xlad::sharding
