// Frameworks write gradients as convolutions. The gradient of the input is a convolution with a dilated base and a
// reversed kernel. The gradient of the kernel is a convolution with batch and features exchanged, and with a window as
// large as the output. oneDNN computes these convolutions fast only if they are described as gradients.
#include "runtime/devices/cpu/convolution_shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensor/shape.h"

namespace xlad::runtime {
namespace {

using tensor::Dims;
using Window = google::protobuf::RepeatedPtrField<ConvolutionOp::WindowDimension>;
using Numbers = google::protobuf::RepeatedField<int64_t>;

absl::Status Misfit(const std::string& what) {
  return absl::InvalidArgumentError("library op convolution: found " + what +
                                    ", expected shapes that match the dimension numbers, window and feature groups");
}

// The tensor with its dimensions in the given order.
absl::StatusOr<Strided> Take(const ArrayShape& shape, int64_t first, int64_t second, const Numbers& spatial) {
  const Dims dims(shape.dims().begin(), shape.dims().end());
  const Dims strides = tensor::Strides(dims);
  std::vector<int64_t> order = {first, second};
  order.insert(order.end(), spatial.begin(), spatial.end());
  std::vector<bool> used(dims.size(), false);
  Strided strided;
  for (const int64_t d : order) {
    if (d < 0 || d >= std::ssize(dims) || used[d]) {
      return Misfit(absl::StrCat("dimension ", d, " of ", dims.size()));
    }
    used[d] = true;
    strided.sizes.push_back(dims[d]);
    strided.strides.push_back(strides[d]);
  }
  if (order.size() != dims.size()) return Misfit(absl::StrCat(dims.size(), " dimensions, ", order.size(), " numbers"));
  return strided;
}

bool All(const Window& window, bool (*holds)(const ConvolutionOp::WindowDimension&)) {
  return std::all_of(window.begin(), window.end(), holds);
}

// Checks the sizes as HLO defines them.
absl::Status CheckSizes(const ConvolutionOp& op, const Strided& lhs, const Strided& rhs, const Strided& result) {
  const int64_t groups = op.feature_group_count();
  bool fits = groups >= 1 && lhs.sizes[0] == result.sizes[0] && rhs.sizes[0] == result.sizes[1] &&
              rhs.sizes[1] * groups == lhs.sizes[1] && rhs.sizes[0] % groups == 0;
  for (int d = 0; d < op.window_size() && fits; ++d) {
    const auto& w = op.window(d);
    const size_t i = d + 2;
    if (w.size() < 1 || w.stride() < 1 || w.window_dilation() < 1 || w.base_dilation() < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "library op convolution: found window size ", w.size(), ", stride ", w.stride(), ", window dilation ",
          w.window_dilation(), " and base dilation ", w.base_dilation(), ", expected each to be at least 1"));
    }
    const int64_t base = lhs.sizes[i] == 0 ? 0 : (lhs.sizes[i] - 1) * w.base_dilation() + 1;
    const int64_t room = base + w.padding_low() + w.padding_high() - ((w.size() - 1) * w.window_dilation() + 1);
    fits = rhs.sizes[i] == w.size() && result.sizes[i] == (room < 0 ? 0 : room / w.stride() + 1);
  }
  return fits ? absl::OkStatus() : Misfit("sizes that do not fit");
}

// Removes elements at the end of the input that are in no window, because oneDNN has few implementations for such
// inputs.
void CutInput(ConvolutionShape* shape) {
  for (size_t d = 0; d < shape->padding_high.size(); ++d) {
    if (shape->padding_high[d] >= 0) continue;
    shape->src.sizes[d + 2] += shape->padding_high[d];
    shape->padding_high[d] = 0;
  }
}

void SetForward(const ConvolutionOp& op, ConvolutionShape* shape) {
  for (const auto& w : op.window()) {
    shape->strides.push_back(w.stride());
    shape->dilations.push_back(w.window_dilation() - 1);
    shape->padding_low.push_back(w.padding_low());
    shape->padding_high.push_back(w.padding_high());
    shape->flip_kernel = w.reversal();
  }
  const int64_t groups = op.feature_group_count();
  if (groups == 1) return;
  Strided& weights = shape->weights;
  const int64_t per_group = weights.sizes[0] / groups;
  weights.sizes[0] = per_group;
  weights.sizes.insert(weights.sizes.begin(), groups);
  weights.strides.insert(weights.strides.begin(), weights.strides[0] * per_group);
}

// Finds the forward convolution of which `op` is the input gradient: its strides are the dilation of the base.
void SetBackwardData(const ConvolutionOp& op, ConvolutionShape* shape) {
  std::swap(shape->src, shape->dst);
  std::swap(shape->weights.sizes[0], shape->weights.sizes[1]);
  std::swap(shape->weights.strides[0], shape->weights.strides[1]);
  for (int d = 0; d < op.window_size(); ++d) {
    const auto& w = op.window(d);
    const size_t i = d + 2;
    const int64_t reach = (w.size() - 1) * w.window_dilation();
    const int64_t low = reach - w.padding_low();
    shape->strides.push_back(w.base_dilation());
    shape->dilations.push_back(w.window_dilation() - 1);
    shape->padding_low.push_back(low);
    shape->padding_high.push_back((shape->dst.sizes[i] - 1) * w.base_dilation() + reach + 1 - shape->src.sizes[i] -
                                  low);
    shape->flip_kernel = !w.reversal();
  }
}

// Finds the forward convolution of which `op` is the kernel gradient: the window is its output, and the result its
// kernel.
void SetBackwardWeights(const ConvolutionOp& op, ConvolutionShape* shape) {
  // The HLO kernel is the gradient of the output, and the HLO result is the gradient of the kernel.
  std::swap(shape->weights, shape->dst);
  const auto exchange = [](Strided* tensor) {
    std::swap(tensor->sizes[0], tensor->sizes[1]);
    std::swap(tensor->strides[0], tensor->strides[1]);
  };
  exchange(&shape->src);      // [features as batch, batch as features] -> [n, c]
  exchange(&shape->dst);      // [o, n] -> [n, o]
  exchange(&shape->weights);  // [c, o] -> [o, c]
  for (int d = 0; d < op.window_size(); ++d) {
    const auto& w = op.window(d);
    const size_t i = d + 2;
    const int64_t reach = (shape->weights.sizes[i] - 1) * w.stride();
    shape->strides.push_back(w.window_dilation());
    shape->dilations.push_back(w.stride() - 1);
    shape->padding_low.push_back(w.padding_low());
    shape->padding_high.push_back((shape->dst.sizes[i] - 1) * w.window_dilation() + reach + 1 - shape->src.sizes[i] -
                                  w.padding_low());
  }
}

}  // namespace

absl::StatusOr<ConvolutionShape> ReadConvolutionShape(const ConvolutionOp& op) {
  const int spatial = op.window_size();
  if (op.input_spatial_size() != spatial || op.kernel_spatial_size() != spatial ||
      op.output_spatial_size() != spatial) {
    return Misfit("different numbers of spatial dimensions");
  }
  if (spatial < 1 || spatial > 3) {
    return absl::UnimplementedError(
        absl::StrCat("library op convolution: found ", spatial, " spatial dimensions, expected 1 to 3"));
  }
  ConvolutionShape shape;
  XLAD_ASSIGN_OR_RETURN(shape.src, Take(op.lhs(), op.input_batch(), op.input_feature(), op.input_spatial()));
  XLAD_ASSIGN_OR_RETURN(shape.weights,
                        Take(op.rhs(), op.kernel_output_feature(), op.kernel_input_feature(), op.kernel_spatial()));
  XLAD_ASSIGN_OR_RETURN(shape.dst, Take(op.result(), op.output_batch(), op.output_feature(), op.output_spatial()));
  XLAD_RETURN_IF_ERROR(CheckSizes(op, shape.src, shape.weights, shape.dst));
  const bool dilated = !All(op.window(), [](const auto& w) { return w.base_dilation() == 1; });
  const bool strided = !All(op.window(), [](const auto& w) { return w.stride() == 1; });
  const bool reversed = op.window(0).reversal();
  if (std::any_of(op.window().begin(), op.window().end(), [&](const auto& w) { return w.reversal() != reversed; })) {
    return absl::UnimplementedError(
        "library op convolution: found a kernel that is reversed in some of its dimensions, expected all or none");
  }
  int64_t window = 1, results = 1;
  for (int d = 0; d < spatial; ++d) {
    window *= op.window(d).size();
    results *= shape.dst.sizes[d + 2];
  }
  if (dilated) {
    if (strided || op.feature_group_count() != 1) {
      return absl::UnimplementedError(
          "library op convolution: found a dilated base with strides or groups, expected stride 1 and one group");
    }
    shape.kind = ConvolutionKind::kBackwardData;
    SetBackwardData(op, &shape);
  } else if (window > results && op.feature_group_count() == 1 && !reversed) {
    shape.kind = ConvolutionKind::kBackwardWeights;
    SetBackwardWeights(op, &shape);
    CutInput(&shape);
  } else {
    SetForward(op, &shape);
    CutInput(&shape);
  }
  if (*std::min_element(shape.padding_low.begin(), shape.padding_low.end()) < 0) {
    return absl::UnimplementedError("library op convolution: found negative low padding, expected 0 or more");
  }
  return shape;
}

}  // namespace xlad::runtime
