// Random dots, convolutions and Fourier transforms.
#include <algorithm>
#include <cmath>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {

namespace {

Sample Product(const Sample& x, const Sample& y, Instruction* made, double terms) {
  const double wide = tensor::IsComplex(x.type()) ? 2 : 1, unit = RoundingOf(x.type());
  Sample result{made, wide * terms * x.bound * y.bound, x.fraction + y.fraction, 0};
  const bool fits = std::log2(std::max(result.bound, 1e-9)) + result.fraction <= -std::log2(unit);
  if (!x.exact() || !y.exact() || (unit > 0 && !fits)) {
    result.error = wide * terms * (x.error * y.bound + y.error * x.bound) + (terms + 2) * unit * result.bound;
  }
  return result;
}

Sample Dot(RandomValues& random, Builder& builder, Sample x, const Pool& pool) {
  if (x.ndim() == 0 || x.type() == ElementType::kPred) return {};
  if (random.OneIn(3)) {
    Dims permutation;
    for (int64_t d = 0; d < x.ndim(); ++d) permutation.insert(permutation.begin() + random.Below(d + 1), d);
    x.array = builder.Transpose(x.array, permutation);
  }
  hlo::DotDimensions dims;
  Dims sizes;  // The right operand's batch, contracting and free dimensions, in random order.
  Dims roles;  // For each of these, the dimension of the left operand, or -1 if the dimension is free.
  double terms = 1;
  for (int64_t d = 0; d < x.ndim(); ++d) {
    const int role = random.Below(3);
    if (role == 0) continue;
    sizes.push_back(x.dims()[d]);
    roles.push_back(d);
    (role == 1 ? dims.lhs_batch : dims.lhs_contracting).push_back(d);
    if (role == 2) terms *= static_cast<double>(sizes.back());
  }
  for (int free = random.Below(3); free > 0; --free) {
    const size_t at = random.Below(std::ssize(sizes) + 1);
    sizes.insert(sizes.begin() + at, 1 + random.Below(6));
    roles.insert(roles.begin() + at, -1);
  }
  const auto place = [&](int64_t d) { return std::find(roles.begin(), roles.end(), d) - roles.begin(); };
  for (int64_t d : dims.lhs_batch) dims.rhs_batch.push_back(place(d));
  for (int64_t d : dims.lhs_contracting) dims.rhs_contracting.push_back(place(d));
  if (tensor::Product(sizes) > RandomValues::kMaxElements) return {};
  const Sample y = random.FiniteOperand(builder, pool, x.type(), sizes);
  ElementType result = x.type();
  if (tensor::ByteWidth(result) <= 2) {
    result = tensor::IsFloating(result) ? ElementType::kF32 : tensor::IsSigned(result) ? ElementType::kS32 : result;
    if (tensor::IsFloating(x.type()) && random.OneIn(2)) result = x.type();
  }
  auto dot = std::make_unique<Instruction>(Opcode::kDot, Shape(result, {}));
  dot->mutable_attributes().dot = dims;
  return Product(x, y, Append(builder, std::move(dot), {x.array, y.array}), terms);
}

Sample Convolution(RandomValues& random, Builder& builder, Sample x, const Pool& pool) {
  if (x.type() != ElementType::kF32 && !(tensor::IsFloating(x.type()) && random.OneIn(2))) return {};
  const int64_t spatial = 1 + random.Below(2), groups = random.OneIn(3) ? 2 + random.Below(2) : 1;
  const int64_t batches = groups == 1 && random.OneIn(5) ? 2 : 1;
  const int64_t in = groups * (1 + random.Below(2)), out = groups * batches * (1 + random.Below(3));
  Dims image = {batches * (1 + random.Below(3))}, kernel;
  hlo::Window window(static_cast<size_t>(spatial));
  double terms = static_cast<double>(in / groups);
  for (hlo::WindowDimension& w : window) {
    image.push_back(3 + random.Below(5));
    w.size = 1 + random.Below(3);
    w.stride = 1 + random.Below(2);
    w.padding_low = random.Below(3);
    w.padding_high = random.Below(3);
    w.window_dilation = random.OneIn(4) ? 2 : 1;
    w.base_dilation = random.OneIn(4) ? 2 : 1;
    w.window_reversal = random.OneIn(6);
    kernel.push_back(w.size);
    terms *= static_cast<double>(w.size);
  }
  image.push_back(in);
  kernel.push_back(in / groups);
  kernel.push_back(out);
  hlo::ConvolutionDimensions dims;
  dims.input_feature = spatial + 1;
  dims.output_feature = spatial + 1;
  dims.kernel_input_feature = spatial;
  dims.kernel_output_feature = spatial + 1;
  for (int64_t d = 0; d < spatial; ++d) {
    dims.input_spatial.push_back(d + 1);
    dims.output_spatial.push_back(d + 1);
    dims.kernel_spatial.push_back(d);
  }
  x = random.Fit(builder, x, x.type(), image);
  Sample k = random.FiniteOperand(builder, pool, x.type(), kernel);
  if (random.OneIn(3)) {  // Channels first.
    Dims order = {0, spatial + 1}, kernel_order = {spatial + 1, spatial};
    for (int64_t d = 0; d < spatial; ++d) order.push_back(d + 1), kernel_order.push_back(d);
    x.array = builder.Transpose(x.array, order);
    k.array = builder.Transpose(k.array, kernel_order);
    dims.input_feature = dims.output_feature = 1;
    dims.kernel_output_feature = 0;
    dims.kernel_input_feature = 1;
    for (int64_t d = 0; d < spatial; ++d) {
      dims.input_spatial[d] = dims.output_spatial[d] =
          dims.kernel_spatial[d] = d + 2;
    }
  }
  auto convolution = std::make_unique<Instruction>(Opcode::kConvolution, Shape(x.type(), {}));
  convolution->mutable_attributes().window = window;
  convolution->mutable_attributes().convolution = dims;
  convolution->mutable_attributes().feature_group_count = groups;
  convolution->mutable_attributes().batch_group_count = batches;
  return Product(x, k, Append(builder, std::move(convolution), {x.array, k.array}), terms);
}

Sample Fourier(RandomValues& random, Builder& builder, Sample x) {
  if (x.array->shape().elements() == 0 || x.ndim() == 0) return {};
  if (x.type() != ElementType::kF32 && x.type() != ElementType::kC64) return {};
  const double n = static_cast<double>(x.dims().back());
  auto fft = std::make_unique<Instruction>(Opcode::kFft, Shape(ElementType::kC64, {}));
  const bool real = x.type() == ElementType::kF32, inverse = random.OneIn(2);
  fft->mutable_attributes().fft_type = real ? "RFFT" : inverse ? "IFFT" : "FFT";
  fft->mutable_attributes().fft_length = {x.dims().back()};
  Sample result{Append(builder, std::move(fft), {x.array}), 2 * n * x.bound, 0, 0};
  result.error = 2 * n * x.error + 16 * n * 0x1p-24 * x.bound;
  return result;
}

}  // namespace

Sample RandomContraction(RandomValues& random, Builder& builder, const Pool& pool) {
  const Sample x = random.PickFinite(pool);
  if (!x) return {};
  const int kind = random.Below(6);
  if (kind == 0) return Fourier(random, builder, x);
  return kind <= 2 ? Convolution(random, builder, x, pool) : Dot(random, builder, x, pool);
}

}  // namespace xlad::compiler
