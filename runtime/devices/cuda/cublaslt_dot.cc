#include "runtime/devices/cuda/cublaslt_dot.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/kernel_abi.h"
#include "tensor/element_type.h"
#include "tensor/wire.h"

namespace xlad::runtime::cuda {
namespace {

using tensor::ElementType;

// The largest number of library calls for a dot. If a dot needs more, xlad's own kernels compute it in one launch.
constexpr int64_t kMaxCalls = 256;
// NVIDIA recommends 32 MiB for GPUs of compute capability 9.0.
constexpr uint64_t kMaxWorkspaceBytes = 32 << 20;
constexpr int kProposals = 8;

// The addresses, sizes and leading dimensions of s8 operands must be multiples of this number of bytes.
constexpr int64_t kInt8Alignment = 4;

// The element types of a product, and how the library computes it.
struct LtTypes {
  ElementType operands, result;
  int lt_operands, lt_result, compute, scale;
};
// The combinations that the library supports and xlad uses.
constexpr LtTypes kLtTypes[] = {
    {ElementType::kF32, ElementType::kF32, kLtF32, kLtF32, kLtComputeF32, kLtF32},
    {ElementType::kBF16, ElementType::kBF16, kLtBf16, kLtBf16, kLtComputeF32, kLtF32},
    {ElementType::kBF16, ElementType::kF32, kLtBf16, kLtF32, kLtComputeF32, kLtF32},
    {ElementType::kF16, ElementType::kF16, kLtF16, kLtF16, kLtComputeF32, kLtF32},
    {ElementType::kF16, ElementType::kF32, kLtF16, kLtF32, kLtComputeF32, kLtF32},
    {ElementType::kF64, ElementType::kF64, kLtF64, kLtF64, kLtComputeF64, kLtF64},
    {ElementType::kS8, ElementType::kS32, kLtS8, kLtS32, kLtComputeS32, kLtS32},
};

// Null if the library does not compute products of these types.
const LtTypes* LtTypesOf(const DotOp& dot) {
  for (const LtTypes& types : kLtTypes) {
    if (tensor::TypeFromWire(dot.lhs()) == types.operands && tensor::TypeFromWire(dot.rhs()) == types.operands &&
        tensor::TypeFromWire(dot.result()) == types.result) {
      return &types;
    }
  }
  return nullptr;
}

int64_t WidthOf(const ArrayShape& shape) { return tensor::ByteWidth(tensor::TypeFromWire(shape)); }

// A matrix as the library describes it: columns of `rows` elements, `leading_dimension` elements apart.
struct Matrix {
  int64_t rows = 1, columns = 1, leading_dimension = 1;
  bool is_transposed = false;
};

// The matrix whose rows and columns have these sizes and strides. Nullopt if neither its rows nor its columns are
// contiguous.
std::optional<Matrix> DescribeMatrix(int64_t rows, int64_t row_stride, int64_t columns, int64_t column_stride) {
  const auto contiguous = [](int64_t size, int64_t stride) { return size == 1 || stride == 1; };
  const auto leading = [](int64_t size, int64_t count, int64_t stride) { return count == 1 ? size : stride; };
  if (contiguous(rows, row_stride) && leading(rows, columns, column_stride) >= rows) {
    return Matrix{rows, columns, leading(rows, columns, column_stride), false};
  }
  if (contiguous(columns, column_stride) && leading(columns, rows, row_stride) >= columns) {
    return Matrix{columns, rows, leading(columns, rows, row_stride), true};
  }
  return std::nullopt;
}

struct Matrices {
  Matrix a, b, d;
};

std::optional<Matrices> DescribeMatrices(const DotShape& shape) {
  const DotLoop m = OnlyLoop(shape.m), n = OnlyLoop(shape.n), k = OnlyLoop(shape.k);
  const auto a = DescribeMatrix(n.size, n.rhs, k.size, k.rhs), b = DescribeMatrix(k.size, k.lhs, m.size, m.lhs);
  const auto d = DescribeMatrix(n.size, n.result, m.size, m.result);
  if (!a.has_value() || !b.has_value() || !d.has_value() || d->is_transposed) return std::nullopt;
  return Matrices{*a, *b, *d};
}

// Whether the shape, which is merged, consists of matrices of a size that the library supports.
bool IsLtShape(const DotShape& shape) {
  if (!shape.IsMatrix()) return false;
  for (const std::vector<DotLoop>* loops : {&shape.batch, &shape.m, &shape.n, &shape.k}) {
    for (const DotLoop& loop : *loops) {
      if (loop.size < 1 || loop.size > INT32_MAX) return false;
    }
  }
  return DescribeMatrices(shape).has_value();
}

// Whether the library computes the product of these matrices of s8, whose elements are in the usual order. It requires
// that A is transposed and B is not, so that both are contiguous along the contracted dimension. The addresses and
// leading dimensions of all three matrices, and their numbers of rows (k, k and n), must be multiples of
// kInt8Alignment.
bool IsLtInt8Shape(const DotShape& shape) {
  const std::optional<Matrices> matrices = DescribeMatrices(shape);
  if (!matrices.has_value() || !matrices->a.is_transposed || matrices->b.is_transposed) return false;
  const auto fits = [](int64_t number) { return number % kInt8Alignment == 0; };
  for (const Matrix* matrix : {&matrices->a, &matrices->b, &matrices->d}) {
    if (!fits(matrix->rows) || !fits(matrix->leading_dimension)) return false;
  }
  return std::all_of(shape.batch.begin(), shape.batch.end(),
                     [&](const DotLoop& loop) { return fits(loop.lhs) && fits(loop.rhs); });
}

// Removes the largest loop from the batch and returns it: the batch dimension of all calls.
DotLoop TakeLargest(std::vector<DotLoop>* batch) {
  if (batch->empty()) return {};
  const auto largest = std::max_element(batch->begin(), batch->end(),
                                        [](const DotLoop& a, const DotLoop& b) { return a.size < b.size; });
  const DotLoop taken = *largest;
  batch->erase(largest);
  return taken;
}

// Sets an attribute of a descriptor by one of the library's functions.
template <typename Set, typename Descriptor, typename Value>
absl::Status SetAttribute(const CublasLtContext& context, Set set, Descriptor descriptor, int attribute, Value value) {
  return context.Check(set(descriptor, attribute, &value, sizeof(value)),
                       absl::StrCat("setting attribute ", attribute, " of a descriptor"));
}

absl::Status MakeLayout(const CublasLtContext& context, LtLayout* layout, int type, const Matrix& matrix) {
  return context.Check(
      context.library().cublasLtMatrixLayoutCreate(layout, type, matrix.rows, matrix.columns, matrix.leading_dimension),
      "cublasLtMatrixLayoutCreate");
}

absl::Status SetBatch(const CublasLtContext& context, LtLayout layout, int64_t count, int64_t stride) {
  const auto set = context.library().cublasLtMatrixLayoutSetAttribute;
  XLAD_RETURN_IF_ERROR(SetAttribute(context, set, layout, kLtLayoutBatchCount, static_cast<int32_t>(count)));
  return SetAttribute(context, set, layout, kLtLayoutBatchStride, stride);
}

// The alignment of the first elements of the matrices of all calls, in bytes.
struct Alignments {
  uint32_t a, b, d;
};

// Restricts the algorithms that the library may propose. A sum may be split into parts if the parts are stored in the
// compute type in the workspace and are added in a separate step, in the order of the parts. The other reduction
// schemes add to the result, or in the type of the result, so a result of bf16 or f16 would be rounded several times.
absl::Status LimitAlgorithms(const CublasLtContext& context, LtPreference preference, const Alignments& alignments) {
  const auto set = context.library().cublasLtMatmulPreferenceSetAttribute;
  XLAD_RETURN_IF_ERROR(SetAttribute(context, set, preference, kLtPreferWorkspaceBytes, kMaxWorkspaceBytes));
  XLAD_RETURN_IF_ERROR(SetAttribute(context, set, preference, kLtPreferReductionSchemes, kLtReductionComputeType));
  XLAD_RETURN_IF_ERROR(SetAttribute(context, set, preference, kLtPreferAlignmentA, alignments.a));
  XLAD_RETURN_IF_ERROR(SetAttribute(context, set, preference, kLtPreferAlignmentB, alignments.b));
  XLAD_RETURN_IF_ERROR(SetAttribute(context, set, preference, kLtPreferAlignmentC, alignments.d));
  return SetAttribute(context, set, preference, kLtPreferAlignmentD, alignments.d);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLtDot>> CublasLtDot::Plan(std::shared_ptr<const CublasLtContext> context,
                                                               const DotOp& dot) {
  XLAD_ASSIGN_OR_RETURN(DotShape shape, ReadDotShape(dot));
  shape.Merge();
  const LtTypes* const types = LtTypesOf(dot);
  if (types == nullptr || !IsLtShape(shape)) return nullptr;
  if (types->operands == ElementType::kS8 && !IsLtInt8Shape(shape)) return nullptr;
  const DotLoop batch = TakeLargest(&shape.batch);
  if (shape.Elements(shape.batch) > kMaxCalls) return nullptr;
  std::unique_ptr<CublasLtDot> planned(new CublasLtDot(std::move(context)));
  planned->calls_ = {{}};
  for (const DotLoop& loop : shape.batch) {
    std::vector<Call> calls;
    for (const Call& outer : planned->calls_) {
      for (int64_t i = 0; i < loop.size; ++i) {
        calls.push_back({outer.lhs + i * loop.lhs * WidthOf(dot.lhs()), outer.rhs + i * loop.rhs * WidthOf(dot.rhs()),
                         outer.result + i * loop.result * WidthOf(dot.result())});
      }
    }
    planned->calls_ = std::move(calls);
  }
  XLAD_RETURN_IF_ERROR(planned->Describe(dot, shape, batch));
  XLAD_ASSIGN_OR_RETURN(const bool found, planned->ChooseAlgorithm());
  return found ? std::move(planned) : nullptr;
}

CublasLtDot::~CublasLtDot() {
  if (desc_ != nullptr) library().cublasLtMatmulDescDestroy(desc_);
  for (const LtLayout layout : {a_, b_, d_}) {
    if (layout != nullptr) library().cublasLtMatrixLayoutDestroy(layout);
  }
}

absl::Status CublasLtDot::Describe(const DotOp& dot, const DotShape& shape, const DotLoop& batch) {
  const std::optional<Matrices> matrices = DescribeMatrices(shape);
  const LtTypes& types = *LtTypesOf(dot);
  scale_type_ = types.scale;
  XLAD_RETURN_IF_ERROR(context_->Check(library().cublasLtMatmulDescCreate(&desc_, types.compute, types.scale),
                                       "cublasLtMatmulDescCreate"));
  const auto set_transposed = [&](int attribute, const Matrix& matrix) {
    return SetAttribute(*context_, library().cublasLtMatmulDescSetAttribute, desc_, attribute,
                        matrix.is_transposed ? kLtTranspose : kLtNoTranspose);
  };
  XLAD_RETURN_IF_ERROR(set_transposed(kLtDescTransposeA, matrices->a));
  XLAD_RETURN_IF_ERROR(set_transposed(kLtDescTransposeB, matrices->b));
  XLAD_RETURN_IF_ERROR(MakeLayout(*context_, &a_, types.lt_operands, matrices->a));
  XLAD_RETURN_IF_ERROR(MakeLayout(*context_, &b_, types.lt_operands, matrices->b));
  XLAD_RETURN_IF_ERROR(MakeLayout(*context_, &d_, types.lt_result, matrices->d));
  if (batch.size == 1) return absl::OkStatus();
  XLAD_RETURN_IF_ERROR(SetBatch(*context_, a_, batch.size, batch.rhs));
  XLAD_RETURN_IF_ERROR(SetBatch(*context_, b_, batch.size, batch.lhs));
  return SetBatch(*context_, d_, batch.size, batch.result);
}

uint32_t CublasLtDot::AlignmentOf(int64_t Call::* offset) const {
  int64_t alignment = XLAD_BUFFER_ALIGNMENT;
  for (const Call& call : calls_) alignment = std::gcd(alignment, call.*offset);
  return alignment;
}

absl::StatusOr<bool> CublasLtDot::ChooseAlgorithm() {
  LtPreference preference = nullptr;
  XLAD_RETURN_IF_ERROR(
      context_->Check(library().cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
  std::array<LtHeuristicResult, kProposals> proposals;
  int count = 0;
  LtStatus asked = kLtSuccess;
  const absl::Status limited = LimitAlgorithms(
      *context_, preference, {AlignmentOf(&Call::rhs), AlignmentOf(&Call::lhs), AlignmentOf(&Call::result)});
  if (limited.ok()) {
    asked = library().cublasLtMatmulAlgoGetHeuristic(context_->handle(), desc_, a_, b_, d_, d_, preference, kProposals,
                                                     proposals.data(), &count);
  }
  library().cublasLtMatmulPreferenceDestroy(preference);
  XLAD_RETURN_IF_ERROR(limited);
  if (asked == kLtNotSupported) return false;
  XLAD_RETURN_IF_ERROR(context_->Check(asked, "cublasLtMatmulAlgoGetHeuristic"));
  for (int i = 0; i < count; ++i) {
    if (proposals[i].state != kLtSuccess || proposals[i].workspace_bytes > kMaxWorkspaceBytes) continue;
    algorithm_ = proposals[i].algorithm;
    workspace_bytes_ = proposals[i].workspace_bytes;
    return true;
  }
  return false;
}

absl::Status CublasLtDot::Run(absl::Span<void* const> buffers, void* workspace, CudaStream* stream) const {
  const float one_f32 = 1;
  const double one_f64 = 1;
  const int32_t one_s32 = 1;
  const void* const one = scale_type_ == kLtF64   ? static_cast<const void*>(&one_f64)
                          : scale_type_ == kLtS32 ? static_cast<const void*>(&one_s32)
                                                  : static_cast<const void*>(&one_f32);
  const int64_t zero = 0;  // Its bytes are 0 in each of these types.
  const auto at = [&](int buffer, int64_t offset) { return static_cast<std::byte*>(buffers[buffer]) + offset; };
  for (const Call& call : calls_) {
    std::byte* const result = at(2, call.result);
    const LtStatus enqueued =
        library().cublasLtMatmul(context_->handle(), desc_, one, at(1, call.rhs), a_, at(0, call.lhs), b_, &zero,
                                 result, d_, result, d_, &algorithm_, workspace, workspace_bytes_, stream->handle());
    if (enqueued != kLtSuccess) return stream->Note(context_->Check(enqueued, "cublasLtMatmul"));
  }
  return absl::OkStatus();
}

}  // namespace xlad::runtime::cuda
