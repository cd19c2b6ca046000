// convolution. The operands are transposed to one order of dimensions first.
#include "hlo/eval/dot.h"
#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"
#include "hlo/eval/window.h"

namespace xlad::hlo::eval {
namespace {

// Returns {first, middle..., last, end}, without `first` or `end` if it is negative.
Dims Order(int64_t first, const Dims& middle, int64_t last, int64_t end = -1) {
  Dims order;
  if (first >= 0) order.push_back(first);
  order.insert(order.end(), middle.begin(), middle.end());
  order.push_back(last);
  if (end >= 0) order.push_back(end);
  return order;
}

// Sizes and groups of a convolution. The input is [batch, spatial..., feature], the kernel [spatial..., input feature,
// output feature], the output [batch, spatial..., feature].
struct Geometry {
  const Window& window;
  Dims input_spatial, output_spatial;
  int64_t input_features, kernel_inputs, output_features, output_batch;
  int64_t feature_groups, batch_groups;
};

// Computes all output features at one position: sums over the window and the input features. Output feature o is in
// group o / (output_features / groups). Each feature group reads one block of the input's features, and each batch
// group reads one block of the input's batches.
template <typename T>
void ConvolvePoint(const Geometry& g, const T* input, const T* kernel, const Dims& position, T* row) {
  const Dims sizes = WindowSizes(g.window);
  const int64_t input_points = tensor::Product(g.input_spatial);
  const int64_t groups = std::max(g.feature_groups, g.batch_groups), outputs = g.output_features / groups;
  const Dims at(position.begin() + 1, position.end());
  int64_t tap = 0;
  for (const Dims& element : tensor::MultiIndices(sizes)) {
    const int64_t point = OperandOffset(g.window, g.input_spatial, at, element);
    const T* taps = kernel + tap++ * g.kernel_inputs * g.output_features;
    if (point < 0) continue;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t batch = g.batch_groups > 1 ? group * g.output_batch + position[0] : position[0];
      const T* features = input + (batch * input_points + point) * g.input_features;
      if (g.feature_groups > 1) features += group * g.kernel_inputs;
      for (int64_t i = 0; i < g.kernel_inputs; ++i) {
        AddScaledRow(row + group * outputs, taps + i * g.output_features + group * outputs, features[i], outputs);
      }
    }
  }
}

absl::StatusOr<Value> EvalConvolution(const Operation& operation) {
  if (operation.operands.size() != 2) {
    return absl::UnimplementedError("convolution with sparsity metadata is not evaluated; remove the sparsity");
  }
  const Attributes& attributes = operation.attributes();
  const ConvolutionDimensions& c = *attributes.convolution;
  ElementType sum = CarrierOf(operation.result().type);
  if (tensor::BitWidth(CarrierOf(operation.operand(0).type())) > tensor::BitWidth(sum)) {
    sum = CarrierOf(operation.operand(0).type());
  }
  const Value input =
      ConvertTo(TransposeValue(operation.operand(0), Order(c.input_batch, c.input_spatial, c.input_feature)), sum);
  const Value kernel =
      ConvertTo(TransposeValue(operation.operand(1),
                               Order(-1, c.kernel_spatial, c.kernel_input_feature, c.kernel_output_feature)),
                sum);
  const Dims output_order = Order(c.output_batch, c.output_spatial, c.output_feature);
  const Dims output_dims = tensor::Select(operation.result().dims, output_order);
  const Geometry g{*attributes.window,
                   Dims(input.dims().begin() + 1, input.dims().end() - 1),
                   Dims(output_dims.begin() + 1, output_dims.end() - 1),
                   input.dims().back(),
                   kernel.dims()[kernel.dims().size() - 2],
                   output_dims.back(),
                   output_dims[0],
                   attributes.feature_group_count,
                   attributes.batch_group_count};
  Array out({sum, output_dims});
  if (out.elements() > 0 && kernel.elements() > 0) {
    const Dims points(output_dims.begin(), output_dims.end() - 1);
    VisitCarrier(sum, [&]<typename T>() {
      T* row = out.values<T>().data();
      for (const Dims& position : tensor::MultiIndices(points)) {
        ConvolvePoint(g, input.values<T>().data(), kernel.values<T>().data(), position, row);
        row += g.output_features;
      }
    });
  }
  return ConvertTo(TransposeValue(Value(std::move(out)), tensor::Inverse(output_order)), operation.result().type);
}

constexpr EvalRow kConvolutionRows[] = {{Opcode::kConvolution, EvalConvolution}};

}  // namespace

absl::Span<const EvalRow> ConvolutionRows() { return kConvolutionRows; }

}  // namespace xlad::hlo::eval
