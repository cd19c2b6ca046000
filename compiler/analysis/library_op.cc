#include "compiler/analysis/library_op.h"

#include <algorithm>

#include "compiler/analysis/attention_op.h"
#include "compiler/analysis/score_space.h"
#include "hlo/analysis/lapack.h"
#include "hlo/analysis/leaves.h"
#include "tensor/wire.h"

namespace xlad::compiler {
namespace {

bool IsLibraryType(ElementType lhs, ElementType rhs, ElementType result) {
  if (lhs != rhs) return false;
  if (lhs == ElementType::kF32) return result == ElementType::kF32;
  if (lhs == ElementType::kBF16) return result == ElementType::kBF16 || result == ElementType::kF32;
  if (lhs == ElementType::kF16) return result == ElementType::kF16 || result == ElementType::kF32;
  return false;
}

// Whether oneDNN supports the convolution: as a forward convolution, or as a gradient with respect to the input or the
// kernel. The following are not supported: windows of 0 or more than 3 dimensions, dilated bases with strides or
// groups, batch groups, reversal of only some dimensions, empty arrays, and the paddings that the loop below excludes.
bool IsLibraryConvolution(const Instruction& conv) {
  const hlo::Attributes& attributes = conv.attributes();
  const hlo::Window& window = *attributes.window;
  if (window.empty() || window.size() > 3 || attributes.batch_group_count != 1) return false;
  for (const Shape* shape : {&conv.operand(0)->shape(), &conv.operand(1)->shape(), &conv.shape()}) {
    if (shape->elements() == 0) return false;
  }
  bool dilated = false, strided = false, fits = true;
  int64_t taps = 1, results = 1;
  for (size_t d = 0; d < window.size(); ++d) {
    dilated |= window[d].base_dilation != 1;
    strided |= window[d].stride != 1;
    fits &= window[d].window_reversal == window[0].window_reversal;
    taps *= window[d].size;
    results *= conv.shape().dim(attributes.convolution->output_spatial[d]);
  }
  const bool by_kernel =
      !dilated && taps > results && attributes.feature_group_count == 1 && !window[0].window_reversal;
  for (const hlo::WindowDimension& w : window) {
    // The low padding of the forward convolution must not be negative. The high padding may be negative by at most a
    // stride, or by less than a stride if the base is dilated. It has no limit in a gradient with respect to the
    // kernel.
    const int64_t reach = (w.size - 1) * w.window_dilation;
    fits &= (dilated ? reach - w.padding_low : w.padding_low) >= 0;
    fits &= dilated ? reach - w.padding_high + w.base_dilation > 0 : by_kernel || w.padding_high + w.stride >= 0;
  }
  return fits && !(dilated && (strided || attributes.feature_group_count != 1));
}

void SetConvolution(const Instruction& instruction, ConvolutionOp* conv) {
  tensor::ShapeToWire(instruction.operand(0)->shape().array(), conv->mutable_lhs());
  tensor::ShapeToWire(instruction.operand(1)->shape().array(), conv->mutable_rhs());
  tensor::ShapeToWire(instruction.shape().array(), conv->mutable_result());
  for (const hlo::WindowDimension& from : *instruction.attributes().window) {
    ConvolutionOp::WindowDimension* to = conv->add_window();
    to->set_size(from.size);
    to->set_stride(from.stride);
    to->set_padding_low(from.padding_low);
    to->set_padding_high(from.padding_high);
    to->set_window_dilation(from.window_dilation);
    to->set_base_dilation(from.base_dilation);
    to->set_reversal(from.window_reversal);
  }
  const hlo::ConvolutionDimensions& dims = *instruction.attributes().convolution;
  conv->set_input_batch(dims.input_batch);
  conv->set_input_feature(dims.input_feature);
  conv->mutable_input_spatial()->Add(dims.input_spatial.begin(), dims.input_spatial.end());
  conv->set_kernel_input_feature(dims.kernel_input_feature);
  conv->set_kernel_output_feature(dims.kernel_output_feature);
  conv->mutable_kernel_spatial()->Add(dims.kernel_spatial.begin(), dims.kernel_spatial.end());
  conv->set_output_batch(dims.output_batch);
  conv->set_output_feature(dims.output_feature);
  conv->mutable_output_spatial()->Add(dims.output_spatial.begin(), dims.output_spatial.end());
  conv->set_feature_group_count(instruction.attributes().feature_group_count);
  conv->set_precision(PrecisionOf(instruction));
}

void SetFft(const Instruction& instruction, FftOp* fft) {
  constexpr std::pair<absl::string_view, FftOp::Kind> kKinds[] = {
      {"FFT", FftOp::FFT}, {"IFFT", FftOp::IFFT}, {"RFFT", FftOp::RFFT}, {"IRFFT", FftOp::IRFFT}};
  tensor::ShapeToWire(instruction.operand(0)->shape().array(), fft->mutable_operand());
  tensor::ShapeToWire(instruction.shape().array(), fft->mutable_result());
  for (const auto& [name, kind] : kKinds) {
    if (instruction.attributes().fft_type == name) fft->set_kind(kind);
  }
  fft->set_dimensions(std::ssize(instruction.attributes().fft_length));
}

// Kernels factorize and solve smaller matrices, to avoid the cost of a call to LAPACK.
constexpr int64_t kMinLapackSize = 8;

bool IsLapackOp(const Instruction& instruction) {
  if (hlo::IsLapackCall(instruction)) return hlo::LapackCallOf(instruction).ok();
  if (instruction.opcode() != Opcode::kCholesky && instruction.opcode() != Opcode::kTriangularSolve) return false;
  const ElementType type = instruction.shape().type();
  return (type == ElementType::kF32 || type == ElementType::kF64 || tensor::IsComplex(type)) &&
         instruction.operand(0)->shape().dims().back() >= kMinLapackSize;
}

void AddOption(absl::string_view name, int32_t value, LapackOp* lapack) {
  LapackOp::Option* option = lapack->add_options();
  option->set_name(std::string(name));
  option->set_value(value);
}

void SetLapackCall(const Instruction& instruction, LapackOp* lapack) {
  const tensor::LapackCall call = *hlo::LapackCallOf(instruction);
  lapack->set_routine(call.routine);
  tensor::TypeToWire(call.type, lapack);
  for (const char* name : {"uplo", "mode", "compute_left", "compute_right", "left", "transpose", "low", "high"}) {
    const int value = tensor::LapackOption(instruction.attributes().backend_config, name, -1);
    if (value >= 0) AddOption(name, value, lapack);
  }
}

void SetLapack(const Instruction& instruction, LapackOp* lapack) {
  const hlo::Attributes& attributes = instruction.attributes();
  int64_t batch_dims = instruction.operand(0)->shape().ndim() - 2;
  if (instruction.opcode() == Opcode::kCustomCall) {
    SetLapackCall(instruction, lapack);
    batch_dims = std::ssize(hlo::LapackCallOf(instruction)->batch);
  } else {
    const bool cholesky = instruction.opcode() == Opcode::kCholesky;
    lapack->set_routine(cholesky ? "cholesky" : "trsm");
    tensor::TypeToWire(instruction.shape().type(), lapack);
    AddOption("uplo", attributes.lower ? 'L' : 'U', lapack);
    if (!cholesky) {
      AddOption("side", attributes.left_side ? 'L' : 'R', lapack);
      AddOption("diag", attributes.unit_diagonal ? 'U' : 'N', lapack);
      const std::string& transpose = attributes.transpose_a;
      AddOption("trans_x", transpose == "ADJOINT" ? 'C' : transpose == "TRANSPOSE" ? 'T' : 'N', lapack);
    }
  }
  int64_t batch = 1;
  for (int64_t d = 0; d < batch_dims; ++d) batch *= instruction.operand(0)->shape().dim(d);
  lapack->set_batch(batch);
  const auto set_one = [&](const Shape& shape, ArrayShape* out) {
    tensor::ShapeToWire({shape.type(), {shape.dims().begin() + batch_dims, shape.dims().end()}}, out);
  };
  for (const Instruction* operand : instruction.operands()) set_one(operand->shape(), lapack->add_operands());
  for (const Shape* leaf : hlo::Leaves(instruction.shape())) set_one(*leaf, lapack->add_results());
}

// The bounds of the kernels that compute dots on GPUs without cuBLASLt (runtime/devices/cuda/library_kernels.h): the
// nested loops along the batch, the rows, the columns and the sum, and the number of their blocks.
constexpr int64_t kMaxGpuDotLoops = 3, kMaxGpuDotBlocks = INT32_MAX;

// Whether these kernels can compute the dot, whatever its layout is. Other dots would be computed by the host, which
// copies their operands. Only a batch can be so large that there are too many blocks.
bool FitsGpuDotKernels(const Instruction& dot) {
  const hlo::DotDimensions& dims = *dot.attributes().dot;
  const FreeDimensions free = FreeDimensionsOf(dot);
  const auto fits = [&](int64_t side, const Dims& of) {
    const Dims& sizes = dot.operand(side)->shape().dims();
    return std::count_if(of.begin(), of.end(), [&](int64_t d) { return sizes[d] != 1; }) <= kMaxGpuDotLoops;
  };
  return fits(0, dims.lhs_batch) && fits(0, free.lhs) && fits(1, free.rhs) && fits(0, dims.lhs_contracting) &&
         tensor::Product(tensor::Select(dot.operand(0)->shape().dims(), dims.lhs_batch)) <= kMaxGpuDotBlocks;
}

}  // namespace

bool IsLibraryOp(const Instruction& instruction) {
  if (instruction.opcode() == Opcode::kFft || IsLapackOp(instruction)) return true;
  if (IsAttention(instruction)) return MakeAttentionOp(instruction).has_value();
  if (instruction.opcode() == Opcode::kConvolution) {
    return instruction.operand(0)->shape().type() != ElementType::kF16 &&
           IsLibraryType(instruction.operand(0)->shape().type(), instruction.operand(1)->shape().type(),
                         instruction.shape().type()) &&
           IsLibraryConvolution(instruction);
  }
  if (instruction.opcode() != Opcode::kDot || instruction.operand_count() != 2) return false;
  return IsLibraryType(instruction.operand(0)->shape().type(), instruction.operand(1)->shape().type(),
                       instruction.shape().type());
}

bool IsGpuLibraryOp(const Instruction& instruction) {
  if (instruction.opcode() != Opcode::kDot || instruction.operand_count() != 2) return false;
  const ElementType operands = instruction.operand(0)->shape().type(), result = instruction.shape().type();
  if (instruction.operand(1)->shape().type() != operands) return false;
  const bool has_types = (operands == ElementType::kF64 && result == ElementType::kF64) ||
                         (operands == ElementType::kS8 && result == ElementType::kS32);
  return has_types && FitsGpuDotKernels(instruction);
}

Precision PrecisionOf(const Instruction& instruction) {
  Precision precision = PRECISION_DEFAULT;
  for (const std::string& name : instruction.attributes().operand_precision) {
    precision = std::max(precision, name == "highest" ? PRECISION_HIGHEST
                                    : name == "high"  ? PRECISION_HIGH
                                                      : PRECISION_DEFAULT);
  }
  return precision;
}

int Bf16Passes(Precision precision) { return precision == PRECISION_HIGHEST ? 6 : precision == PRECISION_HIGH ? 3 : 1; }

LibraryOp MakeLibraryOp(const Instruction& instruction) {
  LibraryOp op;
  if (IsAttention(instruction)) {
    std::optional<AttentionOp> attention = MakeAttentionOp(instruction);
    XLAD_CHECK(attention.has_value()) << instruction.name();
    *op.mutable_attention() = *std::move(attention);
    return op;
  }
  if (instruction.opcode() == Opcode::kConvolution) {
    SetConvolution(instruction, op.mutable_convolution());
    return op;
  }
  if (instruction.opcode() == Opcode::kFft) {
    SetFft(instruction, op.mutable_fft());
    return op;
  }
  if (instruction.opcode() != Opcode::kDot) {
    SetLapack(instruction, op.mutable_lapack());
    return op;
  }
  DotOp* dot = op.mutable_dot();
  tensor::ShapeToWire(instruction.operand(0)->shape().array(), dot->mutable_lhs());
  tensor::ShapeToWire(instruction.operand(1)->shape().array(), dot->mutable_rhs());
  tensor::ShapeToWire(instruction.shape().array(), dot->mutable_result());
  const hlo::DotDimensions& dims = *instruction.attributes().dot;
  dot->mutable_lhs_batch()->Add(dims.lhs_batch.begin(), dims.lhs_batch.end());
  dot->mutable_rhs_batch()->Add(dims.rhs_batch.begin(), dims.rhs_batch.end());
  dot->mutable_lhs_contracting()->Add(dims.lhs_contracting.begin(), dims.lhs_contracting.end());
  dot->mutable_rhs_contracting()->Add(dims.rhs_contracting.begin(), dims.rhs_contracting.end());
  dot->set_precision(PrecisionOf(instruction));
  return op;
}

}  // namespace xlad::compiler
