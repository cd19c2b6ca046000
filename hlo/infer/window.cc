// Inference for opcodes that move a window: convolution, reduce-window, select-and-scatter.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"

namespace xlad::hlo {
namespace {

// With this limit, the product of a field and a number of devices does not overflow. WindowedDims limits the products
// of fields and sizes.
constexpr int64_t kMaxWindowField = int64_t{1} << 36;

absl::Status CheckFields(const WindowDimension& w, size_t d) {
  const auto [least, most] = std::minmax({w.size, w.stride, w.window_dilation, w.base_dilation});
  if (least < 1) {
    return Violation("window-fields",
                     absl::StrCat("size ", w.size, ", stride ", w.stride, ", dilations ", w.base_dilation, " and ",
                                  w.window_dilation, " in window dimension ", d),
                     "1 or more each");
  }
  const auto is_padding = [](int64_t padding) { return padding >= -kMaxWindowField && padding <= kMaxWindowField; };
  if (most <= kMaxWindowField && is_padding(w.padding_low) && is_padding(w.padding_high)) return absl::OkStatus();
  return Violation("window-fields",
                   absl::StrCat("size ", w.size, ", stride ", w.stride, ", dilations ", w.base_dilation, " and ",
                                w.window_dilation, ", padding ", w.padding_low, "_", w.padding_high,
                                " in window dimension ", d),
                   "numbers up to 2^36");
}

}  // namespace

absl::StatusOr<Dims> WindowedDims(absl::Span<const int64_t> dims, const Window& window) {
  using Wide = __int128;  // Holds sums and products of two int64 sizes.
  Dims result;
  for (size_t d = 0; d < dims.size(); ++d) {
    const WindowDimension& w = window[d];
    XLAD_RETURN_IF_ERROR(CheckFields(w, d));
    const Wide base = dims[d] <= 0 ? 0 : Wide{dims[d] - 1} * w.base_dilation + 1;
    const Wide padded = base + w.padding_low + w.padding_high;
    const Wide extent = Wide{w.size - 1} * w.window_dilation + 1;
    if (std::max({base, padded, extent}) > (Wide{1} << 62)) {
      return Violation("shape-size", "a padded dimension or a window of a size beyond 2^62", "at most 2^62 bytes");
    }
    result.push_back(padded < extent ? 0 : (padded - extent) / w.stride + 1);
  }
  return result;
}

namespace {

absl::Status ExpectWindow(const Instruction& i, int64_t ndim, const Window** window) {
  static const Window* const scalar = new Window();
  if (i.attributes().window.has_value()) {
    *window = &*i.attributes().window;
  } else {
    *window = scalar;  // The text omits an empty window.
  }
  if (std::ssize(**window) == ndim) return absl::OkStatus();
  return Violation("window-dimensions", Counted(std::ssize(**window), "window dimension"), absl::StrCat(ndim));
}

absl::Status CheckConvolutionSide(absl::string_view label, const Shape& shape, int64_t a, int64_t b,
                                  const Dims& spatial) {
  Dims all = {a, b};
  all.insert(all.end(), spatial.begin(), spatial.end());
  if (std::ssize(all) != shape.ndim()) {
    return Violation(label,
                     absl::StrCat(Counted(std::ssize(all), "dimension label"), " for ", Brief(shape)),
                     "a label for each dimension");
  }
  return ExpectDimensions(label, all, shape.ndim());
}

absl::Status CheckGroups(const Instruction& i, const ConvolutionDimensions& c) {
  const Shape& x = i.operand(0)->shape();
  const Shape& kernel = i.operand(1)->shape();
  const int64_t features = i.attributes().feature_group_count, batches = i.attributes().batch_group_count;
  if (features < 1 || batches < 1 || (features > 1 && batches > 1)) {
    return Violation("convolution-groups",
                     absl::StrCat("feature_group_count=", features, ", batch_group_count=", batches),
                     "1 or more each, and at least one of them 1");
  }
  const int64_t in = x.dim(c.input_feature), kernel_in = kernel.dim(c.kernel_input_feature);
  if (in % features != 0 || in / features != kernel_in) {
    return Violation("convolution-features",
                     absl::StrCat("input feature size ", in, ", kernel input feature size ", kernel_in, " and ",
                                  features, " groups"),
                     "input features = groups * kernel input features");
  }
  const int64_t out = kernel.dim(c.kernel_output_feature);
  if (out % features != 0 || out % batches != 0) {
    return Violation("convolution-output-features",
                     absl::StrCat("kernel output feature size ", out, " for ", std::max(features, batches), " groups"),
                     "a multiple of the groups");
  }
  if (x.dim(c.input_batch) % batches != 0) {
    return Violation("convolution-batch",
                     absl::StrCat("batch size ", x.dim(c.input_batch), " for ", batches, " groups"),
                     "a multiple of the groups");
  }
  return absl::OkStatus();
}

}  // namespace

Inferred InferConvolution(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 2));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  if (!i.attributes().convolution.has_value()) {
    return Violation("convolution-dims", "no dim_labels", "dimension labels such as b01f_01io->b01f");
  }
  const ConvolutionDimensions& c = *i.attributes().convolution;
  const Shape& x = i.operand(0)->shape();
  const Shape& kernel = i.operand(1)->shape();
  const size_t spatial = c.input_spatial.size();
  if (c.kernel_spatial.size() != spatial || c.output_spatial.size() != spatial) {
    return Violation("convolution-dims",
                     absl::StrCat(spatial, ", ", c.kernel_spatial.size(), " and ", c.output_spatial.size(),
                                  " spatial dimensions of input, kernel and output"),
                     "equal numbers");
  }
  XLAD_RETURN_IF_ERROR(
      CheckConvolutionSide("convolution-input-dims", x, c.input_batch, c.input_feature, c.input_spatial));
  XLAD_RETURN_IF_ERROR(CheckConvolutionSide("convolution-kernel-dims", kernel, c.kernel_input_feature,
                                            c.kernel_output_feature, c.kernel_spatial));
  Dims output_all = {c.output_batch, c.output_feature};
  output_all.insert(output_all.end(), c.output_spatial.begin(), c.output_spatial.end());
  const auto ndim = std::ssize(output_all);
  XLAD_RETURN_IF_ERROR(ExpectDimensions("convolution-output-dims", output_all, ndim));
  XLAD_RETURN_IF_ERROR(CheckGroups(i, c));
  const Window* window = nullptr;
  XLAD_RETURN_IF_ERROR(ExpectWindow(i, spatial, &window));
  Dims input_sizes;
  for (size_t s = 0; s < spatial; ++s) {
    input_sizes.push_back(x.dim(c.input_spatial[s]));
    // If the kernel has a dimension of size 0, the window has it too, and WindowedDims reports it.
    if ((*window)[s].size != kernel.dim(c.kernel_spatial[s])) {
      return Violation("convolution-window-size",
                       absl::StrCat("window size ", (*window)[s].size, " in spatial dimension ", s),
                       absl::StrCat("the kernel's size ", kernel.dim(c.kernel_spatial[s])));
    }
  }
  XLAD_ASSIGN_OR_RETURN(const Dims sizes, WindowedDims(input_sizes, *window));
  Dims dims(ndim);
  dims[c.output_batch] = x.dim(c.input_batch) / i.attributes().batch_group_count;
  dims[c.output_feature] = kernel.dim(c.kernel_output_feature);
  for (size_t s = 0; s < spatial; ++s) dims[c.output_spatial[s]] = sizes[s];
  return Shape(i.shape().type(), std::move(dims));
}

Inferred InferReduceWindow(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectInputsAndInits(i));
  const int64_t n = i.operand_count() / 2;
  const Shape& first = i.operand(0)->shape();
  const Window* window = nullptr;
  XLAD_RETURN_IF_ERROR(ExpectWindow(i, first.ndim(), &window));
  XLAD_ASSIGN_OR_RETURN(const Dims sizes, WindowedDims(first.dims(), *window));
  std::vector<Shape> results;
  std::vector<ElementType> inputs, inits;
  for (int64_t k = 0; k < n; ++k) {
    const Shape& x = i.operand(k)->shape();
    const Shape& init = i.operand(n + k)->shape();
    if (x.dims() != first.dims() || !init.is_scalar()) {
      return Violation("reduce-window-operands", absl::StrCat("input ", Brief(x), " with ", Brief(init)),
                       absl::StrCat("the sizes of ", Brief(first), " and a scalar initial value"));
    }
    results.emplace_back(init.type(), sizes);
    inputs.push_back(x.type());
    inits.push_back(init.type());
  }
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectReducer(i, 0, inputs, inits));
  return OneOrTuple(std::move(results));
}

Inferred InferSelectAndScatter(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  const Shape& x = i.operand(0)->shape();
  const Shape& source = i.operand(1)->shape();
  const Shape& init = i.operand(2)->shape();
  const Window* window = nullptr;
  XLAD_RETURN_IF_ERROR(ExpectWindow(i, x.ndim(), &window));
  XLAD_ASSIGN_OR_RETURN(const Dims sizes, WindowedDims(x.dims(), *window));
  if (source.dims() != sizes) {
    return Violation("select-and-scatter-source", Brief(source),
                     absl::StrCat("sizes ", Brief(sizes), ", one element per window"));
  }
  if (!init.is_scalar() || init.type() != source.type() || source.type() != x.type()) {
    return Violation("select-and-scatter-types",
                     absl::StrCat("operand ", Brief(x), ", source ", Brief(source), ", initial value ", Brief(init)),
                     "one element type and a scalar initial value");
  }
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 2));
  const Shape scalar(x.type(), {});
  XLAD_ASSIGN_OR_RETURN(const Signature select, SignatureOf(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectTakes("select-and-scatter-select", select, {&scalar, &scalar}));
  if (!select.result.SameIgnoringLayout(Shape(ElementType::kPred, {}))) {
    return Violation("select-and-scatter-select", Brief(select.result), "pred[] as the result");
  }
  XLAD_RETURN_IF_ERROR(ExpectReducer(i, 1, {x.type()}, {x.type()}));
  return Shape(x.type(), x.dims());
}

}  // namespace xlad::hlo
