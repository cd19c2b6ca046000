// batch-norm-training, -inference and -grad over all dimensions except for the feature dimension, computed in double.
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

// The feature dimension, and the number of elements per feature.
struct Features {
  int64_t stride, count;
  double elements;
  // The feature of element i.
  int64_t Of(int64_t i) const { return i / stride % count; }
};

Features FeaturesOf(const Operation& operation) {
  const Dims& dims = operation.operand(0).dims();
  const int64_t d = operation.attributes().feature_index, count = dims[d];
  return {tensor::Strides(dims)[d], count, 1.0 * tensor::Product(dims) / count};
}

// For each feature, the sum of f(i) over its elements.
template <typename F>
Doubles SumOf(const Features& features, int64_t elements, const F& f) {
  Doubles sum(features.count, 0.0);
  for (int64_t i = 0; i < elements; ++i) sum[features.Of(i)] += f(i);
  return sum;
}

// The means are NaN if features have no elements.
Doubles Divided(Doubles sums, const Features& features) {
  for (double& value : sums) value /= features.elements;
  return sums;
}

template <typename F>
Doubles MeanOf(const Features& features, int64_t elements, const F& f) {
  return Divided(SumOf(features, elements, f), features);
}

// (x - mean) / sqrt(variance + epsilon) * scale + offset, with scale and offset the operands 1 and 2.
Doubles NormalizeAll(const Operation& operation, const Doubles& x, const Doubles& mean, const Doubles& variance) {
  const Features features = FeaturesOf(operation);
  const Doubles scale = Read(operation.operand(1)), offset = Read(operation.operand(2));
  const double epsilon = operation.attributes().epsilon;
  Doubles y(x.size());
  for (const int64_t i : tensor::Indices(x)) {
    const int64_t f = features.Of(i);
    y[i] = (x[i] - mean[f]) / std::sqrt(variance[f] + epsilon) * scale[f] + offset[f];
  }
  return y;
}

absl::StatusOr<Value> EvalTraining(const Operation& operation) {
  const Features features = FeaturesOf(operation);
  const Doubles x = Read(operation.operand(0));
  const Doubles mean = MeanOf(features, x.size(), [&](int64_t i) { return x[i]; });
  const Doubles variance = MeanOf(features, x.size(), [&](int64_t i) {
    const double distance = x[i] - mean[features.Of(i)];
    return distance * distance;
  });
  const Doubles y = NormalizeAll(operation, x, mean, variance);
  return Value::Tuple(
      {Write(y, operation.result(0)), Write(mean, operation.result(1)), Write(variance, operation.result(2))});
}

absl::StatusOr<Value> EvalInference(const Operation& operation) {
  const Doubles x = Read(operation.operand(0)), mean = Read(operation.operand(3)),
                variance = Read(operation.operand(4));
  return Write(NormalizeAll(operation, x, mean, variance), operation.result());
}

// The gradients of operand, scale and offset for the gradient of the first result of EvalTraining.
absl::StatusOr<Value> EvalGrad(const Operation& operation) {
  const Features features = FeaturesOf(operation);
  const Doubles x = Read(operation.operand(0)), scale = Read(operation.operand(1)), mean = Read(operation.operand(2));
  const Doubles variance = Read(operation.operand(3)), grad = Read(operation.operand(4));
  const double epsilon = operation.attributes().epsilon;
  const auto normal = [&](int64_t i) {
    const int64_t f = features.Of(i);
    return (x[i] - mean[f]) / std::sqrt(variance[f] + epsilon);
  };
  const Doubles sum_grad = SumOf(features, x.size(), [&](int64_t i) { return grad[i]; });
  const Doubles sum_product = SumOf(features, x.size(), [&](int64_t i) { return grad[i] * normal(i); });
  const Doubles mean_grad = Divided(sum_grad, features), mean_product = Divided(sum_product, features);
  Doubles grad_x(x.size());
  for (const int64_t i : tensor::Indices(x)) {
    const int64_t f = features.Of(i);
    grad_x[i] = scale[f] / std::sqrt(variance[f] + epsilon) * (grad[i] - mean_grad[f] - normal(i) * mean_product[f]);
  }
  return Value::Tuple({Write(grad_x, operation.result(0)), Write(sum_product, operation.result(1)),
                       Write(sum_grad, operation.result(2))});
}

constexpr EvalRow kBatchNormRows[] = {
    {Opcode::kBatchNormTraining, EvalTraining},
    {Opcode::kBatchNormInference, EvalInference},
    {Opcode::kBatchNormGrad, EvalGrad},
};

}  // namespace

absl::Span<const EvalRow> BatchNormRows() { return kBatchNormRows; }

}  // namespace xlad::hlo::eval
