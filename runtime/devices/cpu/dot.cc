// Matrix products by oneDNN.
//
// Plans are tried in order when an executable is loaded: operands in their own layout (transposes are strides), then
// with one or both packed to row-major order, then with bf16 widened to f32 for machines without bf16. The first plan
// for which oneDNN has a fast implementation is used.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtime/devices/cpu/dnnl_util.h"
#include "runtime/devices/cpu/dot_shape.h"
#include "runtime/devices/cpu/half_rows.h"
#include "runtime/devices/cpu/library_op.h"
#include "tensor/element_type.h"
#include "tensor/small_float.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

// How the product is computed.
struct Plan {
  bool pack_lhs = false, pack_rhs = false;
  bool widen = false;  // Operands are converted to f32, and the result from f32.
};

struct Types {
  ElementType lhs, rhs, result;
};

struct Matrices {
  dnnl_memory_desc_t lhs, rhs, result;
};

absl::StatusOr<dnnl_memory_desc_t> Describe(const DotShape& shape, const DotLoop& row, const DotLoop& column,
                                            int64_t DotLoop::* stride, ElementType type) {
  if (shape.batch.size() + 2 > DNNL_MAX_NDIMS)
    return absl::UnimplementedError("library op dot: found more batch dimensions than oneDNN supports");
  dnnl_dims_t sizes, strides;
  int n = 0;
  const auto add = [&](const DotLoop& loop) {
    sizes[n] = loop.size;
    strides[n++] = loop.*stride;
  };
  for (const DotLoop& loop : shape.batch) add(loop);
  add(row);
  add(column);
  dnnl_memory_desc_t desc;
  XLAD_RETURN_IF_ERROR(
      FromDnnl(dnnl_memory_desc_init_by_strides(&desc, n, sizes, DnnlType(type), strides), "memory description"));
  return desc;
}

DotLoop Only(const std::vector<DotLoop>& loops) { return loops.empty() ? DotLoop{} : loops[0]; }

// Extents of 1 that were merged away get row-major strides, because oneDNN recognizes those.
absl::StatusOr<Matrices> DescribeAll(const DotShape& shape, const Types& types) {
  DotLoop m = Only(shape.m), n = Only(shape.n), k = Only(shape.k);
  if (m.size == 1) m.lhs = k.lhs * k.size, m.result = n.size;
  if (n.size == 1) n.rhs = k.rhs == 1 ? k.size : 1, n.result = 1;
  if (k.size == 1) k.lhs = m.lhs == 1 ? m.size : 1, k.rhs = n.rhs * n.size;
  Matrices matrices;
  XLAD_ASSIGN_OR_RETURN(matrices.lhs, Describe(shape, m, k, &DotLoop::lhs, types.lhs));
  XLAD_ASSIGN_OR_RETURN(matrices.rhs, Describe(shape, k, n, &DotLoop::rhs, types.rhs));
  XLAD_ASSIGN_OR_RETURN(matrices.result, Describe(shape, m, n, &DotLoop::result, types.result));
  return matrices;
}

PackKind KindOf(ElementType from, bool widen) {
  if (from == ElementType::kF32) return PackKind::kSame4;
  if (from == ElementType::kF16) return PackKind::kF16ToF32;
  return widen ? PackKind::kBf16ToF32 : PackKind::kSame2;
}

void Narrow(ElementType type, const float* from, int64_t count, void* to) {
  if (type == ElementType::kF16) return NarrowHalf(from, count, static_cast<uint16_t*>(to));
  uint16_t* brain = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i < count; ++i) brain[i] = tensor::EncodeBf16(from[i]);
}

class DnnlDot final : public PreparedLibraryOp {
 public:
  static absl::StatusOr<std::unique_ptr<DnnlDot>> Try(const DotOp& op, const Types& types, const Plan& plan) {
    auto dot = std::make_unique<DnnlDot>();
    dot->plan_ = plan;
    dot->types_ = types;
    XLAD_ASSIGN_OR_RETURN(dot->shape_, ReadDotShape(op));
    XLAD_RETURN_IF_ERROR(dot->Prepare());
    return dot;
  }

  size_t buffer_count() const override { return 3; }
  int64_t scratch_bytes() const override { return lhs_bytes_ + rhs_bytes_ + result_bytes_ + op_.scratchpad_bytes; }
  absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall() const override;
  std::string Description() const override {
    return absl::StrCat(empty_ ? "nothing to sum" : op_.name, plan_.pack_lhs ? ", lhs packed" : "",
                        plan_.pack_rhs ? ", rhs packed" : "", plan_.widen ? ", in f32" : "");
  }
  bool IsFast() const { return empty_ || op_.IsFast(); }

 private:
  friend class DotCall;

  absl::Status Prepare() {
    const auto bytes = [&](const Packing& packing, ElementType type) {
      int64_t elements = 1;
      for (const int64_t size : packing.sizes) elements *= size;
      return RoundUpToAlignment(elements * (plan_.widen ? 4 : tensor::ByteWidth(type)));
    };
    if (plan_.pack_lhs) lhs_bytes_ = bytes(lhs_packing_ = PackLhs(&shape_), types_.lhs);
    if (plan_.pack_rhs) rhs_bytes_ = bytes(rhs_packing_ = PackRhs(&shape_), types_.rhs);
    result_elements_ = shape_.Elements(shape_.batch) * shape_.Elements(shape_.m) * shape_.Elements(shape_.n);
    empty_ = result_elements_ == 0 || shape_.Elements(shape_.k) == 0;
    if (empty_) return absl::OkStatus();
    if (plan_.widen && types_.result != ElementType::kF32) result_bytes_ = RoundUpToAlignment(result_elements_ * 4);
    shape_.Merge();
    if (!shape_.IsMatrix())
      return absl::UnimplementedError("library op dot: found strides that are not those of a matrix");
    const Types computed = plan_.widen ? Types{ElementType::kF32, ElementType::kF32, ElementType::kF32} : types_;
    XLAD_ASSIGN_OR_RETURN(matrices_, DescribeAll(shape_, computed));
    dnnl_matmul_desc_t desc;
    XLAD_RETURN_IF_ERROR(
        FromDnnl(dnnl_matmul_desc_init(&desc, &matrices_.lhs, &matrices_.rhs, nullptr, &matrices_.result), "matmul"));
    XLAD_ASSIGN_OR_RETURN(op_, MakeDnnlOp(&desc, nullptr));
    return absl::OkStatus();
  }

  Plan plan_;
  Types types_;
  DotShape shape_;
  Packing lhs_packing_, rhs_packing_;
  Matrices matrices_;
  DnnlOp op_;
  bool empty_ = false;
  int64_t result_elements_ = 0;
  int64_t lhs_bytes_ = 0, rhs_bytes_ = 0, result_bytes_ = 0;
};

class DotCall final : public LibraryCall {
 public:
  explicit DotCall(const DnnlDot* dot) : dot_(*dot) {}

  absl::Status Prepare() {
    if (dot_.empty_) return absl::OkStatus();
    return call_.Prepare(dot_.op_, {{DNNL_ARG_SRC, dot_.matrices_.lhs},
                                    {DNNL_ARG_WEIGHTS, dot_.matrices_.rhs},
                                    {DNNL_ARG_DST, dot_.matrices_.result}});
  }

  absl::Status Run(absl::Span<void* const> buffers, void* scratch) override {
    void *lhs = buffers[0], *rhs = buffers[1], *result = buffers[2];
    if (dot_.empty_) {
      const int64_t width = tensor::ByteWidth(dot_.types_.result);
      std::memset(result, 0, static_cast<size_t>(dot_.result_elements_ * width));
      return absl::OkStatus();
    }
    char* free = static_cast<char*>(scratch);
    const auto take = [&](int64_t bytes) { return std::exchange(free, free + bytes); };
    if (dot_.plan_.pack_lhs) lhs = Packed(dot_.lhs_packing_, dot_.types_.lhs, lhs, take(dot_.lhs_bytes_));
    if (dot_.plan_.pack_rhs) rhs = Packed(dot_.rhs_packing_, dot_.types_.rhs, rhs, take(dot_.rhs_bytes_));
    void* product = dot_.result_bytes_ > 0 ? take(dot_.result_bytes_) : result;
    XLAD_RETURN_IF_ERROR(call_.Run({lhs, rhs, product}, free));
    if (product != result) Narrow(dot_.types_.result, static_cast<float*>(product), dot_.result_elements_, result);
    return absl::OkStatus();
  }

 private:
  void* Packed(const Packing& packing, ElementType type, const void* from, void* to) const {
    Pack(packing, KindOf(type, dot_.plan_.widen), from, to);
    return to;
  }

  const DnnlDot& dot_;
  DnnlCall call_;
};

absl::StatusOr<std::unique_ptr<LibraryCall>> DnnlDot::MakeCall() const {
  auto call = std::make_unique<DotCall>(this);
  XLAD_RETURN_IF_ERROR(call->Prepare());
  return call;
}

bool IsLibraryType(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kBF16 || type == ElementType::kF16;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareDot(const DotOp& op) {
  UseOneThread();
  const Types types{static_cast<ElementType>(op.lhs().element_type()),
                    static_cast<ElementType>(op.rhs().element_type()),
                    static_cast<ElementType>(op.result().element_type())};
  if (!IsLibraryType(types.lhs) || !IsLibraryType(types.rhs) || !IsLibraryType(types.result)) {
    return absl::UnimplementedError("library op dot: found an element type other than f32, bf16 and f16");
  }
  XLAD_RETURN_IF_ERROR(ReadDotShape(op).status());
  const bool direct = types.lhs == types.rhs && types.lhs != ElementType::kF16 && types.result != ElementType::kF16 &&
                      (types.lhs == ElementType::kBF16 || types.result == ElementType::kF32);
  std::vector<Plan> plans;
  if (direct) plans = {{false, false, false}, {false, true, false}, {true, false, false}, {true, true, false}};
  plans.push_back({true, true, true});
  std::unique_ptr<DnnlDot> slow;
  for (const Plan& plan : plans) {
    absl::StatusOr<std::unique_ptr<DnnlDot>> dot = DnnlDot::Try(op, types, plan);
    if (!dot.ok()) continue;
    if ((*dot)->IsFast()) return std::unique_ptr<PreparedLibraryOp>(std::move(*dot));
    if (slow == nullptr) slow = std::move(*dot);
  }
  if (slow == nullptr) return absl::UnimplementedError("library op dot: oneDNN has no implementation for these shapes");
  return std::unique_ptr<PreparedLibraryOp>(std::move(slow));
}

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareLibraryOp(const LibraryOp& op) {
  if (op.has_dot()) return PrepareDot(op.dot());
  if (op.has_convolution()) return PrepareConvolution(op.convolution());
  return absl::InvalidArgumentError("found a library op of an unknown kind, expected dot or convolution");
}

}  // namespace xlad::runtime
