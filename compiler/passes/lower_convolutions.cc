// Replaces convolutions that the library does not support with matrix products and, in programs for CPUs, kernel
// gradients of transposed convolutions with those of strided convolutions.
//
// Needs: simplified. Leaves: library convolutions (compiler/analysis/library_op.h), and convolutions that become
// kernels (compiler/codegen/llvm/convolution.cc). The latter are depthwise ones for CPUs (IsDepthwise), or have batch
// groups, elements that are not floats, operands of different types, no spatial dimension, no elements, patches of more
// than kMaxPatchBytes, or more than kMaxSlices slices (see below).
//
// In programs for CPUs, the features of depthwise convolutions become the last dimension of both operands and of the
// result, because CPU kernels compute vectors of features (HasVectorsOfGroups).
//
// The method for the other convolutions is im2col: a convolution contracts over window positions and input features.
// Its patches, which are the elements under the window for each output position, are stacked from strided slices of the
// padded input and multiplied with the kernel by one dot. There is one slice for each window position. The output may
// have fewer positions than the window, as in the gradient of a kernel. If it does and there are no feature groups,
// there is one slice for each output position instead, and the dot contracts over the window.
//
// The kernel gradient of a transposed convolution has a dilated input and a window that is larger than the output. Most
// of its products have a zero of the dilation as a factor. If its operands are exchanged and its output is reversed, it
// is the kernel gradient of a strided convolution, whose window is dilated.

#include <algorithm>
#include <numeric>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/hlo_names.h"
#include "compiler/analysis/kernel_cost.h"
#include "compiler/analysis/library_op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/replace_instructions.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kMaxSlices = 64;
constexpr int64_t kMaxPatchBytes = 1 << 30;

// With output position k, window position t and dilation d, a kernel gradient of a transposed convolution is
//   result[k] = sum over t of input[(k + t - low) / d] * kernel[t],
// where the division must have no remainder. With i for the quotient, t is i * d + low - k. So
//   result[k] = sum over i of kernel[(size - 1 - k) + i * d - (size - 1 - low)] * input[i],
// where `size` is the number of output positions. This is position size - 1 - k of a convolution over `kernel` with
// low padding size - 1 - low, and with `input` as a window of dilation d.
class GradientExchange {
 public:
  explicit GradientExchange(Instruction* convolution)
      : convolution_(convolution),
        dims_(*convolution->attributes().convolution),
        window_(*convolution->attributes().window) {}

  // The replacement, or null if the convolution is not such a gradient. The library computes the new convolution as the
  // gradient of a kernel, because its window is larger than its output and its low padding is not negative.
  Instruction* Run() {
    const hlo::Attributes& attributes = convolution_->attributes();
    if (attributes.feature_group_count != 1 || attributes.batch_group_count != 1) return nullptr;
    bool is_dilated = false;
    int64_t window = 1, exchanged = 1, results = 1;
    for (size_t s = 0; s < window_.size(); ++s) {
      const hlo::WindowDimension& w = window_[s];
      if (w.stride != 1 || w.window_dilation != 1 || w.window_reversal || w.padding_low > Size(s) - 1) return nullptr;
      is_dilated |= w.base_dilation > 1;
      window *= w.size;
      exchanged *= convolution_->operand(0)->shape().dim(dims_.input_spatial[s]);
      results *= Size(s);
    }
    return is_dilated && window > results && exchanged > results ? Exchanged() : nullptr;
  }

 private:
  int64_t Size(size_t s) const { return convolution_->shape().dim(dims_.output_spatial[s]); }

  Instruction* Exchanged() {
    Instruction *input = convolution_->operand(0), *kernel = convolution_->operand(1);
    Instruction* gradient = CloneWithOperands(*convolution_, {kernel, input}, convolution_->parent());
    hlo::Attributes& attributes = gradient->mutable_attributes();
    std::reverse(attributes.operand_precision.begin(), attributes.operand_precision.end());
    attributes.convolution = hlo::ConvolutionDimensions{.input_batch = dims_.kernel_output_feature,
                                                        .input_feature = dims_.kernel_input_feature,
                                                        .kernel_input_feature = dims_.input_feature,
                                                        .kernel_output_feature = dims_.input_batch,
                                                        .output_batch = dims_.output_feature,
                                                        .output_feature = dims_.output_batch,
                                                        .input_spatial = dims_.kernel_spatial,
                                                        .kernel_spatial = dims_.input_spatial,
                                                        .output_spatial = dims_.output_spatial};
    for (size_t s = 0; s < window_.size(); ++s) {
      const hlo::WindowDimension& w = window_[s];
      hlo::WindowDimension& of_gradient = (*attributes.window)[s];
      of_gradient.size = input->shape().dim(dims_.input_spatial[s]);
      of_gradient.window_dilation = w.base_dilation;
      of_gradient.base_dilation = 1;
      of_gradient.padding_low = Size(s) - 1 - w.padding_low;
      of_gradient.padding_high = w.padding_low + (of_gradient.size - 1) * w.base_dilation + 1 - w.size;
    }
    auto reverse = std::make_unique<Instruction>(Opcode::kReverse, convolution_->shape());
    reverse->set_dimensions(dims_.output_spatial);
    reverse->set_metadata(convolution_->shared_metadata());
    return convolution_->parent()->Add(std::move(reverse), {gradient});
  }

  Instruction* convolution_;
  const hlo::ConvolutionDimensions dims_;
  const hlo::Window window_;
};

// Lowers one convolution.
class ConvolutionLowering {
 public:
  explicit ConvolutionLowering(Instruction* convolution)
      : convolution_(convolution),
        dims_(*convolution->attributes().convolution),
        window_(*convolution->attributes().window),
        groups_(convolution->attributes().feature_group_count),
        builder_(convolution->parent()) {
    builder_.set_template(convolution);
  }

  // The replacement, or null if the convolution is not replaced.
  Instruction* Run(bool is_cpu) {
    if (is_cpu && IsDepthwise(*convolution_)) return HasVectorsOfGroups(*convolution_) ? nullptr : FeaturesLast();
    if (convolution_->attributes().batch_group_count != 1 || window_.empty()) return nullptr;
    if (!tensor::IsFloating(convolution_->shape().type())) return nullptr;
    if (convolution_->operand(0)->shape().type() != convolution_->operand(1)->shape().type()) return nullptr;
    if (convolution_->shape().elements() == 0 || convolution_->operand(1)->shape().elements() == 0) return nullptr;
    Dims window, output;
    for (size_t s = 0; s < window_.size(); ++s) {
      window.push_back(window_[s].size);
      output.push_back(convolution_->shape().dim(dims_.output_spatial[s]));
    }
    const bool stack_window = tensor::Product(window) <= tensor::Product(output) || groups_ != 1;
    const Dims& stacked = stack_window ? window : output;
    const Dims& kept = stack_window ? output : window;
    if (tensor::Product(stacked) > kMaxSlices || PatchBytes(stacked, kept) > kMaxPatchBytes) return nullptr;
    Instruction* patches = Patches(stacked, kept, stack_window);
    return stack_window ? ContractFeatures(patches, window) : ContractWindow(patches, output);
  }

 private:
  // The same depthwise convolution with vectors of groups, between transposes of its operands and of its result.
  Instruction* FeaturesLast() {
    const int64_t last = convolution_->shape().ndim() - 1, of_input = InputDimensionOfGroups(*convolution_);
    Instruction* input = MoveToEnd(convolution_->operand(0), of_input);
    Instruction* kernel = MoveToEnd(convolution_->operand(1), dims_.kernel_output_feature);
    Instruction* moved = CloneWithOperands(*convolution_, {input, kernel}, convolution_->parent());
    hlo::ConvolutionDimensions& n = *moved->mutable_attributes().convolution;
    Renumber(of_input, last, {&n.input_batch, &n.input_feature}, &n.input_spatial);
    Renumber(dims_.kernel_output_feature, last, {&n.kernel_input_feature, &n.kernel_output_feature}, &n.kernel_spatial);
    Renumber(dims_.output_feature, last, {&n.output_batch, &n.output_feature}, &n.output_spatial);
    const Dims order = ToEnd(dims_.output_feature);
    moved->mutable_shape() = Shape(convolution_->shape().type(), tensor::Select(convolution_->shape().dims(), order));
    return dims_.output_feature == last ? moved : builder_.Transpose(moved, tensor::Inverse(order));
  }

  // All dimensions in order, but d at the end.
  Dims ToEnd(int64_t d) const {
    Dims order(convolution_->shape().ndim());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin() + d, order.begin() + d + 1, order.end());
    return order;
  }
  Instruction* MoveToEnd(Instruction* x, int64_t d) {
    return d + 1 == x->shape().ndim() ? x : builder_.Transpose(x, ToEnd(d));
  }
  // Assigns the numbers that dimensions have after dimension d has moved to the end.
  static void Renumber(int64_t d, int64_t last, std::initializer_list<int64_t*> numbers, Dims* spatial) {
    const auto renumber = [&](int64_t& number) { number = number == d ? last : number > d ? number - 1 : number; };
    for (int64_t* number : numbers) renumber(*number);
    for (int64_t& number : *spatial) renumber(number);
  }

  int64_t PatchBytes(const Dims& stacked, const Dims& kept) const {
    const Shape& input = convolution_->operand(0)->shape();
    return input.dim(dims_.input_batch) * input.dim(dims_.input_feature) * tensor::Product(stacked) *
           tensor::Product(kept) * tensor::ByteWidth(input.type());
  }

  Instruction* Padded() {
    Instruction* input = convolution_->operand(0);
    std::vector<hlo::PaddingDimension> padding(input->shape().ndim());
    for (size_t s = 0; s < window_.size(); ++s) {
      padding[dims_.input_spatial[s]] = {window_[s].padding_low, window_[s].padding_high, window_[s].base_dilation - 1};
    }
    return builder_.Pad(input, builder_.Scalar(input->shape().type(), 0), padding);
  }

  // Slices of the padded input, one for each position of `stacked`, with the elements for all positions of `kept`.
  // The result has the input's dimensions with spatial sizes `kept`, and one more for `stacked` before stack_before_.
  Instruction* Patches(const Dims& stacked, const Dims& kept, bool stack_window) {
    Instruction* padded = Padded();
    // The stacked dimension is inserted before the dimension that is contracted or kept together with it, so that the
    // product has one dimension for both.
    stack_before_ = stack_window ? dims_.input_feature : dims_.input_batch;
    std::vector<Instruction*> slices;
    Dims position(stacked.size(), 0);
    do {
      Dims start(padded->shape().ndim(), 0), limit = padded->shape().dims();
      Dims stride(start.size(), 1);
      for (size_t s = 0; s < window_.size(); ++s) {
        const hlo::WindowDimension& w = window_[s];
        const size_t d = dims_.input_spatial[s];
        // The stacked position determines the start of the slice, and the kept position its step.
        int64_t index = position[s];
        if (stack_window && w.window_reversal) index = w.size - 1 - index;
        start[d] = index * (stack_window ? w.window_dilation : w.stride);
        stride[d] = stack_window ? w.stride : w.window_dilation;
        limit[d] = start[d] + (kept[s] - 1) * stride[d] + 1;
      }
      Instruction* slice = builder_.Slice(padded, start, limit, stride);
      Dims one = slice->shape().dims();
      one.insert(one.begin() + stack_before_, 1);
      slices.push_back(builder_.Reshape(slice, one));
    } while (tensor::NextIndex(stacked, absl::MakeSpan(position)));
    return slices.size() == 1 ? slices[0] : builder_.Concatenate(slices, stack_before_);
  }

  // The dimension of the patches that corresponds to dimension d of the input.
  int64_t Shifted(int64_t d) const { return d >= stack_before_ ? d + 1 : d; }

  // The product of patches[.., window, ..] and the kernel over window positions and input features. Feature groups are
  // batch dimensions.
  Instruction* ContractFeatures(Instruction* patches, const Dims& window) {
    Instruction* kernel = KernelWithMergedWindow(tensor::Product(window));
    int64_t feature = Shifted(dims_.input_feature);
    hlo::DotDimensions dot;
    if (groups_ != 1) {
      patches = builder_.SplitDimension(patches, feature, groups_);
      kernel = builder_.SplitDimension(kernel, 2, groups_);
      dot.lhs_batch = {feature++};
      dot.rhs_batch = {2};
    }
    dot.lhs_contracting = {stack_before_, feature};
    dot.rhs_contracting = {0, 1};
    Instruction* product = builder_.Dot(patches, kernel, dot, convolution_->shape().type());
    return Arrange(product, groups_ != 1);
  }

  // The kernel as [window positions, input features, output features].
  Instruction* KernelWithMergedWindow(int64_t positions) {
    Instruction* kernel = convolution_->operand(1);
    Dims permutation(dims_.kernel_spatial);
    permutation.push_back(dims_.kernel_input_feature);
    permutation.push_back(dims_.kernel_output_feature);
    const int64_t inputs = kernel->shape().dim(dims_.kernel_input_feature);
    const int64_t outputs = kernel->shape().dim(dims_.kernel_output_feature);
    return builder_.Reshape(builder_.Transpose(kernel, permutation), {positions, inputs, outputs});
  }

  // Transposes the product to the result. The product has the dimensions [group,] batch and spatial dimensions in the
  // input's order, output features.
  Instruction* Arrange(Instruction* product, bool grouped) {
    std::vector<std::pair<int64_t, int64_t>> places = {{dims_.input_batch, dims_.output_batch}};
    for (size_t s = 0; s < window_.size(); ++s) places.emplace_back(dims_.input_spatial[s], dims_.output_spatial[s]);
    std::sort(places.begin(), places.end());
    const int64_t ndim = product->shape().ndim();
    Dims permutation(ndim);
    const int64_t first = grouped ? 1 : 0;
    // source[d] is the product's dimension that becomes result dimension d. The group is merged into the output
    // feature.
    Dims source(ndim - first);
    for (size_t i = 0; i < places.size(); ++i) {
      source[places[i].second] = first + i;
    }
    source[dims_.output_feature] = ndim - 1;
    permutation = source;
    if (grouped) permutation.insert(permutation.begin() + dims_.output_feature, 0);
    return builder_.Reshape(builder_.Transpose(product, permutation), convolution_->shape().dims());
  }

  // The product of patches[.., output positions, ..] and the kernel over the window and input features.
  Instruction* ContractWindow(Instruction* patches, const Dims& output) {
    Instruction* kernel = convolution_->operand(1);
    Dims reversed;
    hlo::DotDimensions dot;
    for (size_t s = 0; s < window_.size(); ++s) {
      if (window_[s].window_reversal) reversed.push_back(dims_.kernel_spatial[s]);
      dot.lhs_contracting.push_back(Shifted(dims_.input_spatial[s]));
      dot.rhs_contracting.push_back(dims_.kernel_spatial[s]);
    }
    if (!reversed.empty()) {
      auto reverse = std::make_unique<Instruction>(Opcode::kReverse, kernel->shape());
      reverse->set_dimensions(reversed);
      reverse->set_metadata(convolution_->shared_metadata());
      kernel = convolution_->parent()->Add(std::move(reverse), {kernel});
    }
    dot.lhs_contracting.push_back(Shifted(dims_.input_feature));
    dot.rhs_contracting.push_back(dims_.kernel_input_feature);
    Instruction* product = builder_.Dot(patches, kernel, dot, convolution_->shape().type());
    // The product has output positions, batch and output features, in this order.
    Dims split = output, permutation(output.size() + 2);
    split.push_back(convolution_->shape().dim(dims_.output_batch));
    split.push_back(convolution_->shape().dim(dims_.output_feature));
    for (size_t s = 0; s < output.size(); ++s) {
      permutation[dims_.output_spatial[s]] = s;
    }
    permutation[dims_.output_batch] = std::ssize(output);
    permutation[dims_.output_feature] = std::ssize(output) + 1;
    return builder_.Transpose(builder_.Reshape(product, split), permutation);
  }

  Instruction* convolution_;
  const hlo::ConvolutionDimensions& dims_;
  const hlo::Window& window_;
  const int64_t groups_;
  int64_t stack_before_ = 0;
  hlo::Builder builder_;
};

}  // namespace

absl::Status LowerConvolutions(hlo::Module& module, PassContext& context) {
  ReplaceInstructions(module, [&](Instruction* instruction) -> Instruction* {
    if (instruction->opcode() != Opcode::kConvolution) return nullptr;
    if (IsLibraryOp(*instruction)) return context.is_cpu ? GradientExchange(instruction).Run() : nullptr;
    return ConvolutionLowering(instruction).Run(context.is_cpu);
  });
  return absl::OkStatus();
}

}  // namespace xlad::compiler
