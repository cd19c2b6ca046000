// batch-norm-training, -inference and -grad, over all dimensions but the feature's; in double.
#include <cmath>

#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

using Doubles = std::vector<double>;

Doubles Read(const Value& value) {
  const Value wide = ConvertTo(value, ElementType::kF64);
  const auto values = wide.values<double>();
  return Doubles(values.begin(), values.end());
}

Value Write(const Doubles& values, const tensor::Shape& shape) {
  Array out({ElementType::kF64, shape.dims});
  std::copy(values.begin(), values.end(), out.values<double>().begin());
  return ConvertTo(Value(std::move(out)), shape.type);
}

// Which feature an element belongs to, and how many elements each has.
struct Features {
  int64_t stride, count;
  double elements;
  size_t Of(size_t i) const { return static_cast<size_t>(static_cast<int64_t>(i) / stride % count); }
};

Features FeaturesOf(const Operation& operation) {
  const Dims& dims = operation.operand(0).dims();
  const size_t d = operation.attributes().feature_index;
  const int64_t count = dims[d];
  return {tensor::Strides(dims)[d], count, static_cast<double>(tensor::Product(dims)) / static_cast<double>(count)};
}

// The mean over each feature's elements of f(i).
template <typename F>
Doubles MeanOf(const Features& features, size_t elements, const F& f) {
  Doubles mean(static_cast<size_t>(features.count), 0.0);
  for (size_t i = 0; i < elements; ++i) mean[features.Of(i)] += f(i);
  for (double& value : mean) value /= features.elements;
  return mean;
}

absl::StatusOr<Value> EvalTraining(const Operation& operation) {
  const Features features = FeaturesOf(operation);
  const Doubles x = Read(operation.operand(0)), scale = Read(operation.operand(1)), offset = Read(operation.operand(2));
  const Doubles mean = MeanOf(features, x.size(), [&](size_t i) { return x[i]; });
  const Doubles variance = MeanOf(features, x.size(), [&](size_t i) {
    const double distance = x[i] - mean[features.Of(i)];
    return distance * distance;
  });
  Doubles y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t f = features.Of(i);
    y[i] = (x[i] - mean[f]) / std::sqrt(variance[f] + double{operation.attributes().epsilon}) * scale[f] + offset[f];
  }
  return Value::Tuple(
      {Write(y, operation.result(0)), Write(mean, operation.result(1)), Write(variance, operation.result(2))});
}

absl::StatusOr<Value> EvalInference(const Operation& operation) {
  const Features features = FeaturesOf(operation);
  const Doubles x = Read(operation.operand(0)), scale = Read(operation.operand(1)), offset = Read(operation.operand(2));
  const Doubles mean = Read(operation.operand(3)), variance = Read(operation.operand(4));
  Doubles y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t f = features.Of(i);
    y[i] = (x[i] - mean[f]) / std::sqrt(variance[f] + double{operation.attributes().epsilon}) * scale[f] + offset[f];
  }
  return Write(y, operation.result());
}

// The derivatives of EvalTraining's first result by operand, scale and offset, applied to the output's gradient.
absl::StatusOr<Value> EvalGrad(const Operation& operation) {
  const Features features = FeaturesOf(operation);
  const Doubles x = Read(operation.operand(0)), scale = Read(operation.operand(1)), mean = Read(operation.operand(2));
  const Doubles variance = Read(operation.operand(3)), grad = Read(operation.operand(4));
  const auto normal = [&](size_t i) {
    const size_t f = features.Of(i);
    return (x[i] - mean[f]) / std::sqrt(variance[f] + double{operation.attributes().epsilon});
  };
  const Doubles mean_grad = MeanOf(features, x.size(), [&](size_t i) { return grad[i]; });
  const Doubles mean_product = MeanOf(features, x.size(), [&](size_t i) { return grad[i] * normal(i); });
  Doubles grad_x(x.size()), grad_scale, grad_offset;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t f = features.Of(i);
    grad_x[i] = scale[f] / std::sqrt(variance[f] + double{operation.attributes().epsilon}) *
                (grad[i] - mean_grad[f] - normal(i) * mean_product[f]);
  }
  for (size_t f = 0; f < mean_grad.size(); ++f) {
    grad_scale.push_back(mean_product[f] * features.elements);
    grad_offset.push_back(mean_grad[f] * features.elements);
  }
  return Value::Tuple({Write(grad_x, operation.result(0)), Write(grad_scale, operation.result(1)),
                       Write(grad_offset, operation.result(2))});
}

constexpr EvalRow kRows[] = {
    {Opcode::kBatchNormTraining, EvalTraining},
    {Opcode::kBatchNormInference, EvalInference},
    {Opcode::kBatchNormGrad, EvalGrad},
};

}  // namespace

absl::Span<const EvalRow> BatchNormRows() { return kRows; }

}  // namespace xlad::hlo::eval
