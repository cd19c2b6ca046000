#include "runtime/devices/cuda/library_ops.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "runtime/devices/cpu/dot_shape.h"
#include "runtime/devices/cpu/plain_dot.h"
#include "runtime/devices/cuda/library_kernels.h"
#include "tensor/element_type.h"
#include "tensor/wire.h"

XLAD_EMBED_PTX(xlad_library_kernels, XLAD_LIBRARY_KERNELS);  // The PTX of library_kernels.c.

namespace xlad::runtime::cuda {
namespace {

using tensor::Dims;
using tensor::ElementType;

// Dots of bf16 or f16 with fewer rows or columns do not use tensor cores: most of a tile would be empty.
constexpr int64_t kMinMmaSide = 16;
// With tensor cores, large tiles are used only if there are at least this many of them, about as many as large GPUs run
// at once.
constexpr int64_t kWantedDotBlocks = 128;

std::optional<XladElement> ElementOf(const ArrayShape& shape) {
  switch (tensor::TypeFromWire(shape)) {
    case ElementType::kF32:
      return XLAD_F32;
    case ElementType::kBF16:
      return XLAD_BF16;
    case ElementType::kF16:
      return XLAD_F16;
    default:
      return std::nullopt;
  }
}

struct Elements {
  XladElement lhs, rhs, result;
};

// Nullopt if the kernels do not support one of the types.
template <typename Product>
std::optional<Elements> ElementsOf(const Product& product) {
  const auto lhs = ElementOf(product.lhs()), rhs = ElementOf(product.rhs()), result = ElementOf(product.result());
  if (!lhs.has_value() || !rhs.has_value() || !result.has_value()) return std::nullopt;
  return Elements{*lhs, *rhs, *result};
}

// The same for a dot, for which the kernels also support two other combinations of types.
std::optional<Elements> ElementsOfDot(const DotOp& dot) {
  if (!HasPlainTypes(dot)) return ElementsOf(dot);
  if (tensor::TypeFromWire(dot.lhs()) == ElementType::kF64) return Elements{XLAD_F64, XLAD_F64, XLAD_F64};
  return Elements{XLAD_S8, XLAD_S8, XLAD_S32};
}

// Fills the loops of one group, outermost first. Returns false if there are too many.
bool FillLoops(const std::vector<DotLoop>& from, XladDotLoop* to) {
  if (from.size() > XLAD_DOT_LOOPS) return false;
  for (size_t i = 0; i < XLAD_DOT_LOOPS; ++i) {
    to[i] =
        i < from.size() ? XladDotLoop{from[i].size, from[i].lhs, from[i].rhs, from[i].result} : XladDotLoop{1, 0, 0, 0};
  }
  return true;
}

// How the kernels that use tensor cores load an operand, whose strides are DotLoop::lhs or DotLoop::rhs.
XladDotVectors VectorsOf(const std::vector<DotLoop>& sides, const std::vector<DotLoop>& depths,
                         int64_t DotLoop::* stride) {
  const auto are_adjacent = [&](const std::vector<DotLoop>& loops) {
    return !loops.empty() && loops.back().*stride == 1 && (loops.size() == 1 || loops.back().size % 8 == 0);
  };
  if (are_adjacent(depths)) return XLAD_DOT_DEPTH_VECTORS;
  return are_adjacent(sides) ? XLAD_DOT_SIDE_VECTORS : XLAD_DOT_NO_VECTORS;
}

// The kernel of a dot, and the size of its tiles. The choice depends on the dot alone, not on the GPU.
struct DotKernel {
  const char* name;
  int64_t tile;
};
DotKernel KernelOf(const XladDotProblem& problem) {
  const int64_t smaller = std::min(problem.m, problem.n);
  const auto without_mma = [&](const char* small, const char* large) {
    return smaller < XLAD_DOT_LARGE_TILE ? DotKernel{small, XLAD_DOT_SMALL_TILE}
                                         : DotKernel{large, XLAD_DOT_LARGE_TILE};
  };
  if (problem.lhs_element == XLAD_F64) return without_mma("xlad_dot_f64_small", "xlad_dot_f64_large");
  if (problem.lhs_element == XLAD_S8) return without_mma("xlad_dot_s8_small", "xlad_dot_s8_large");
  const bool are_narrow = problem.lhs_element == problem.rhs_element && problem.lhs_element != XLAD_F32;
  if (!are_narrow || smaller < kMinMmaSide) return without_mma("xlad_dot_small", "xlad_dot_large");
  const auto tiles = [](int64_t size) { return CeilDiv(size, XLAD_DOT_LARGE_MMA_TILE); };
  const bool is_large =
      smaller >= XLAD_DOT_LARGE_MMA_TILE && problem.batch * tiles(problem.m) * tiles(problem.n) >= kWantedDotBlocks;
  const bool is_bf16 = problem.lhs_element == XLAD_BF16;
  if (is_large) return {is_bf16 ? "xlad_dot_mma_bf16_large" : "xlad_dot_mma_f16_large", XLAD_DOT_LARGE_MMA_TILE};
  return {is_bf16 ? "xlad_dot_mma_bf16_small" : "xlad_dot_mma_f16_small", XLAD_DOT_SMALL_MMA_TILE};
}

// The size and stride of dimension `d` of an array, which is row-major.
std::pair<int64_t, int64_t> SizeAndStride(const ArrayShape& shape, int64_t d) {
  const Dims dims(shape.dims().begin(), shape.dims().end());
  const Dims strides = tensor::Strides(dims);
  return {dims[d], strides[d]};
}

XladConvolutionProblem ConvolutionProblem(const ConvolutionOp& op, const Elements& elements) {
  XladConvolutionProblem problem = {};
  const auto [outputs, output_stride] = SizeAndStride(op.result(), op.output_feature());
  problem.batch = SizeAndStride(op.result(), op.output_batch()).first;
  problem.output_features = outputs;
  problem.features_per_group = SizeAndStride(op.rhs(), op.kernel_input_feature()).first;
  problem.output_features_per_group = std::max<int64_t>(1, outputs / op.feature_group_count());
  problem.input_batch_stride = SizeAndStride(op.lhs(), op.input_batch()).second;
  problem.input_feature_stride = SizeAndStride(op.lhs(), op.input_feature()).second;
  problem.kernel_input_stride = SizeAndStride(op.rhs(), op.kernel_input_feature()).second;
  problem.kernel_output_stride = SizeAndStride(op.rhs(), op.kernel_output_feature()).second;
  problem.output_batch_stride = SizeAndStride(op.result(), op.output_batch()).second;
  problem.output_feature_stride = output_stride;
  problem.input_element = elements.lhs;
  problem.kernel_element = elements.rhs;
  problem.result_element = elements.result;
  problem.outputs = problem.batch * outputs;
  for (int d = 0; d < XLAD_CONVOLUTION_DIMS; ++d) {
    XladConvolutionDim& dim = problem.dims[d];
    dim = {1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0};
    if (d >= op.window_size()) continue;
    const auto& window = op.window(d);
    std::tie(dim.input_size, dim.input_stride) = SizeAndStride(op.lhs(), op.input_spatial(d));
    std::tie(dim.kernel_size, dim.kernel_stride) = SizeAndStride(op.rhs(), op.kernel_spatial(d));
    std::tie(dim.output_size, dim.output_stride) = SizeAndStride(op.result(), op.output_spatial(d));
    dim.window_stride = window.stride();
    dim.padding_low = window.padding_low();
    dim.window_dilation = window.window_dilation();
    dim.base_dilation = window.base_dilation();
    dim.reversal = window.reversal();
    problem.outputs *= dim.output_size;
  }
  return problem;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LibraryOps>> LibraryOps::Load(std::shared_ptr<const Gpu> gpu,
                                                             std::shared_ptr<const CublasLtContext> products,
                                                             const Executable& executable) {
  std::unique_ptr<LibraryOps> ops(new LibraryOps(std::move(gpu), std::move(products)));
  for (int i = 0; i < executable.library_ops_size(); ++i) {
    const absl::Status added = ops->Add(executable.library_ops(i));
    if (!added.ok()) return Annotate(added, absl::StrCat("executable '", executable.name(), "', op ", i));
  }
  return ops;
}

LibraryOps::~LibraryOps() {
  for (const Op& op : ops_) {
    if (op.problem != 0) gpu_->Free(op.problem);
  }
}

absl::Status LibraryOps::Add(const LibraryOp& library_op) {
  Op op;
  XLAD_ASSIGN_OR_RETURN(op.host, PrepareLibraryOp(library_op));  // This call also checks the op.
  const auto add = [&](const ArrayShape& shape, bool is_result, int64_t times = 1) {
    op.buffers.push_back({tensor::ShapeFromWire(shape).bytes() * times, is_result, false});
  };
  if (library_op.has_dot()) {
    const DotOp& dot = library_op.dot();
    add(dot.lhs(), false), add(dot.rhs(), false), add(dot.result(), true);
    XLAD_RETURN_IF_ERROR(PlanDot(dot, &op));
  } else if (library_op.has_convolution()) {
    const ConvolutionOp& convolution = library_op.convolution();
    add(convolution.lhs(), false), add(convolution.rhs(), false), add(convolution.result(), true);
    XLAD_RETURN_IF_ERROR(PlanConvolution(convolution, &op));
  } else if (library_op.has_fft()) {
    add(library_op.fft().operand(), false), add(library_op.fft().result(), true);
  } else if (library_op.has_lapack()) {
    const LapackOp& lapack = library_op.lapack();
    for (const ArrayShape& shape : lapack.operands()) add(shape, false, lapack.batch());
    for (const ArrayShape& shape : lapack.results()) add(shape, true, lapack.batch());
  } else {
    for (const auto& operand : library_op.attention().operands()) add(operand.shape(), false);
    for (const auto& result : library_op.attention().results()) {
      op.buffers.push_back({tensor::ShapeFromWire(result.array().shape()).bytes(), true, true});
    }
    XLAD_RETURN_IF_ERROR(PlanAttention(library_op.attention(), &op));
  }
  if (op.buffers.size() != op.host->buffer_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", op.buffers.size(), " operands and results, expected ", op.host->buffer_count()));
  }
  ops_.push_back(std::move(op));
  return absl::OkStatus();
}

template <typename Problem>
absl::Status LibraryOps::SetKernel(const std::string& kernel, const Problem& problem, Op* op) {
  if (kernels_ == nullptr) {
    XLAD_ASSIGN_OR_RETURN(kernels_, CudaModule::Load(gpu_, xlad_library_kernels, "library_kernels"));
  }
  XLAD_ASSIGN_OR_RETURN(const FunctionHandle function, kernels_->Find(kernel));
  XLAD_ASSIGN_OR_RETURN(op->problem,
                        AllocateCopy(gpu_, {reinterpret_cast<const std::byte*>(&problem), sizeof(problem)}));
  op->kernel = function;
  return absl::OkStatus();
}

absl::Status LibraryOps::PlanDot(const DotOp& dot, Op* op) {
  if (products_ != nullptr) {
    XLAD_RETURN_IF_ERROR(gpu_->Activate());
    XLAD_ASSIGN_OR_RETURN(op->product, CublasLtDot::Plan(products_, dot));
    if (op->product != nullptr) {
      workspace_bytes_ = std::max<int64_t>(workspace_bytes_, op->product->workspace_bytes());
      return absl::OkStatus();
    }
  }
  const std::optional<Elements> elements = ElementsOfDot(dot);
  XLAD_ASSIGN_OR_RETURN(DotShape shape, ReadDotShape(dot));
  shape.Merge();
  XladDotProblem problem = {};
  const bool fits = FillLoops(shape.batch, problem.loops[0]) && FillLoops(shape.m, problem.loops[1]) &&
                    FillLoops(shape.n, problem.loops[2]) && FillLoops(shape.k, problem.loops[3]);
  if (!fits || !elements.has_value()) return absl::OkStatus();
  problem.batch = shape.Elements(shape.batch);
  problem.m = shape.Elements(shape.m);
  problem.n = shape.Elements(shape.n);
  problem.k = shape.Elements(shape.k);
  problem.lhs_element = elements->lhs;
  problem.rhs_element = elements->rhs;
  problem.result_element = elements->result;
  problem.lhs_vectors = VectorsOf(shape.m, shape.k, &DotLoop::lhs);
  problem.rhs_vectors = VectorsOf(shape.n, shape.k, &DotLoop::rhs);
  const DotKernel kernel = KernelOf(problem);
  problem.row_tiles = CeilDiv(problem.m, kernel.tile);
  problem.column_tiles = CeilDiv(problem.n, kernel.tile);
  const int64_t blocks = problem.batch * problem.row_tiles * problem.column_tiles;
  if (blocks < 1 || blocks > INT32_MAX) return absl::OkStatus();
  op->blocks = blocks;
  op->threads = XLAD_DOT_THREADS;
  return SetKernel(kernel.name, problem, op);
}

absl::Status LibraryOps::PlanConvolution(const ConvolutionOp& convolution, Op* op) {
  const std::optional<Elements> elements = ElementsOf(convolution);
  if (!elements.has_value() || convolution.window_size() > XLAD_CONVOLUTION_DIMS) return absl::OkStatus();
  const XladConvolutionProblem problem = ConvolutionProblem(convolution, *elements);
  const int64_t blocks = CeilDiv(problem.outputs, XLAD_CONVOLUTION_THREADS);
  if (blocks < 1 || blocks > INT32_MAX) return absl::OkStatus();
  op->blocks = blocks;
  op->threads = XLAD_CONVOLUTION_THREADS;
  return SetKernel("xlad_convolution", problem, op);
}

absl::Status LibraryOps::PlanAttention(const AttentionOp& attention, Op* op) {
  if (attention_kernels_ == nullptr) {
    XLAD_ASSIGN_OR_RETURN(attention_kernels_, CudaModule::Load(gpu_, GpuAttention::Kernels(), "gpu_attention_kernels"));
  }
  XLAD_ASSIGN_OR_RETURN(op->attention, GpuAttention::Make(gpu_, *attention_kernels_, attention));
  if (op->attention != nullptr) workspace_bytes_ = std::max(workspace_bytes_, op->attention->scratch_bytes());
  return absl::OkStatus();
}

LibraryOpsLauncher::~LibraryOpsLauncher() {
  if (workspace_ != 0) stream_.gpu().Free(workspace_);
}

absl::Status LibraryOpsLauncher::Prepare() {
  if (ops_.workspace_bytes_ == 0) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(workspace_, stream_.gpu().Allocate(ops_.workspace_bytes_));
  return absl::OkStatus();
}

absl::Status LibraryOpsLauncher::Run(int op, absl::Span<void* const> buffers) {
  const LibraryOps::Op& planned = ops_.ops_[op];
  stream_.SetLast(absl::StrCat("library op ", op));
  XLAD_RETURN_IF_ERROR(stream_.Begin());
  if (planned.attention != nullptr) return planned.attention->Run(&stream_, buffers, workspace_);
  if (planned.product != nullptr) {
    return planned.product->Run(buffers, reinterpret_cast<void*>(workspace_), &stream_);
  }
  return planned.kernel != nullptr ? RunKernel(planned, buffers) : RunOnHost(planned, buffers);
}

absl::Status LibraryOpsLauncher::RunKernel(const LibraryOps::Op& op, absl::Span<void* const> buffers) {
  std::vector<void*> parameters = {reinterpret_cast<void*>(op.problem)};
  parameters.insert(parameters.end(), buffers.begin(), buffers.end());
  return stream_.Launch(op.kernel, {op.blocks, op.threads}, std::move(parameters));
}

// Computes an op on the host. Waits for the copies of the operands to the host.
absl::Status LibraryOpsLauncher::RunOnHost(const LibraryOps::Op& op, absl::Span<void* const> buffers) {
  if (team_ == nullptr) team_ = std::make_unique<ThreadTeam>(stream_.threads());
  struct alignas(XLAD_BUFFER_ALIGNMENT) Line {
    std::array<std::byte, XLAD_BUFFER_ALIGNMENT> bytes;
  };
  const auto lines = [](int64_t bytes) { return std::vector<Line>(bytes / XLAD_BUFFER_ALIGNMENT + 1); };
  std::vector<std::vector<Line>> arrays;
  std::vector<void*> addresses;
  const auto bytes_of = [&](size_t b) { return absl::MakeSpan(arrays[b][0].bytes.data(), op.buffers[b].bytes); };
  for (size_t b = 0; b < buffers.size(); ++b) {
    arrays.push_back(lines(op.buffers[b].bytes));
    addresses.push_back(arrays[b].data());
    if (op.buffers[b].is_result && !op.buffers[b].has_gaps) continue;
    XLAD_RETURN_IF_ERROR(stream_.CopyToHost(bytes_of(b), buffers[b]));
  }
  XLAD_RETURN_IF_ERROR(stream_.Synchronize());
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<LibraryCall> call, op.host->MakeCall(stream_.threads()));
  std::vector<Line> scratch = lines(op.host->scratch_bytes(stream_.threads()));
  XLAD_RETURN_IF_ERROR(stream_.Note(call->Run(addresses, scratch.data(), *team_)));
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (!op.buffers[b].is_result) continue;
    XLAD_RETURN_IF_ERROR(stream_.CopyToDevice(buffers[b], bytes_of(b)));
  }
  return absl::OkStatus();
}

}  // namespace xlad::runtime::cuda
