// Matrix products by oneDNN. Products for which small_dot.h is preferred are left to it.
//
// When an executable is loaded, plans are tried in this order. First, operands keep their layout (transposes are
// strides). Then, rhs, lhs or both are packed to row-major order. Finally, both operands are packed and widened to f32,
// for bf16 on machines without bf16, for f16, and for operands of different types. The first plan for which oneDNN
// has a fast implementation is used. The product is divided into tiles (DotGrid), each of which is one call of oneDNN
// by one thread. There is one primitive for each distinct size of a tile.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "runtime/devices/cpu/dnnl_util.h"
#include "runtime/devices/cpu/dot_shape.h"
#include "runtime/devices/cpu/half_rows.h"
#include "runtime/devices/cpu/library_op.h"
#include "runtime/devices/cpu/plain_dot.h"
#include "runtime/devices/cpu/small_dot.h"
#include "tensor/element_type.h"
#include "tensor/small_float.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

// How the product is computed.
struct DotPlan {
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
    return absl::UnimplementedError(absl::StrCat("found ", shape.batch.size(),
                                                 " batch dimensions, expected at most ", DNNL_MAX_NDIMS - 2,
                                                 ", the limit of oneDNN"));
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

// One call of oneDNN: the index of its primitive, and the offsets of its operands and result in elements.
struct Tile {
  size_t variant;
  int64_t lhs, rhs, result;
};

// A primitive for tiles of one size.
struct DotVariant {
  DotGrid sizes;
  Matrices matrices;
  DnnlOp op;
};

// Loops of extent 1 that Merge removed get row-major strides, because oneDNN recognizes those. `sizes` are the sizes of
// the tile; the strides are the strides of the whole product.
absl::StatusOr<Matrices> DescribeAll(DotShape shape, const DotGrid& sizes, const Types& types) {
  DotLoop m = OnlyLoop(shape.m), n = OnlyLoop(shape.n), k = OnlyLoop(shape.k);
  if (m.size == 1) m.lhs = k.lhs * k.size, m.result = n.size;
  if (n.size == 1) n.rhs = k.rhs == 1 ? k.size : 1, n.result = 1;
  if (k.size == 1) k.lhs = m.lhs == 1 ? m.size : 1, k.rhs = n.rhs * n.size;
  m.size = sizes.m;
  n.size = sizes.n;
  if (!shape.batch.empty()) shape.batch[0].size = sizes.batch;
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
  uint16_t* bf16 = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i < count; ++i) bf16[i] = tensor::EncodeBf16(from[i]);
}

class DnnlDot final : public PreparedLibraryOp {
 public:
  static absl::StatusOr<std::unique_ptr<DnnlDot>> Try(const DotOp& op, const Types& types, const DotPlan& plan) {
    auto dot = std::make_unique<DnnlDot>();
    dot->plan_ = plan;
    dot->types_ = types;
    XLAD_ASSIGN_OR_RETURN(dot->shape_, ReadDotShape(op));
    XLAD_RETURN_IF_ERROR(dot->Prepare());
    return dot;
  }

  size_t buffer_count() const override { return 3; }
  int64_t scratch_bytes(int threads) const override {
    return lhs_bytes_ + rhs_bytes_ + result_bytes_ + threads * scratchpad_bytes_;
  }
  absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall(int threads) const override;
  std::string Description() const override {
    return absl::StrCat(empty_ ? "nothing to sum" : variants_[0].op.name,
                        tiles_.size() > 1 ? absl::StrCat(", ", tiles_.size(), " tiles") : "",
                        plan_.pack_lhs ? ", lhs packed" : "",
                        plan_.pack_rhs ? ", rhs packed" : "", plan_.widen ? ", in f32" : "");
  }
  bool needs_matrix_code() const override {
    return std::any_of(variants_.begin(), variants_.end(),
                       [](const DotVariant& variant) { return variant.op.IsMatrixProduct(); });
  }
  bool IsFast() const {
    return std::all_of(variants_.begin(), variants_.end(),
                       [](const DotVariant& variant) { return variant.op.IsFast(); });
  }

 private:
  friend class DotCall;

  absl::Status Prepare() {
    const auto bytes = [&](const Packing& packing, ElementType type) {
      int64_t elements = 1;
      for (const int64_t size : packing.sizes) elements *= size;
      return RoundUp(elements * (plan_.widen ? 4 : tensor::ByteWidth(type)), XLAD_BUFFER_ALIGNMENT);
    };
    if (plan_.pack_lhs) lhs_bytes_ = bytes(lhs_packing_ = PackLhs(&shape_), types_.lhs);
    if (plan_.pack_rhs) rhs_bytes_ = bytes(rhs_packing_ = PackRhs(&shape_), types_.rhs);
    result_elements_ = shape_.Elements(shape_.batch) * shape_.Elements(shape_.m) * shape_.Elements(shape_.n);
    empty_ = result_elements_ == 0 || shape_.Elements(shape_.k) == 0;
    if (empty_) return absl::OkStatus();
    if (plan_.widen && types_.result != ElementType::kF32) {
      result_bytes_ = RoundUp(result_elements_ * 4, XLAD_BUFFER_ALIGNMENT);
    }
    shape_.Merge();
    if (!shape_.IsMatrix()) {
      return absl::UnimplementedError(absl::StrCat("found ", shape_.m.size(), " dimensions m, ",
                                                   shape_.n.size(), " n and ", shape_.k.size(),
                                                   " dimensions k whose strides are not those of one "
                                                   "dimension, expected at most 1 of each"));
    }
    XLAD_RETURN_IF_ERROR(MakeTiles(ChooseGrid(shape_)));
    if (tiles_.size() == 1 || IsFast()) return absl::OkStatus();
    tiles_.clear();
    variants_.clear();
    return MakeTiles(
        {shape_.batch.empty() ? 1 : shape_.batch[0].size, OnlyLoop(shape_.m).size, OnlyLoop(shape_.n).size});
  }

  absl::Status MakeTiles(const DotGrid& grid) {
    const DotLoop m = OnlyLoop(shape_.m), n = OnlyLoop(shape_.n);
    const DotLoop batch = shape_.batch.empty() ? DotLoop{} : shape_.batch[0];
    for (int64_t b = 0; b < batch.size; b += grid.batch) {
      for (int64_t i = 0; i < m.size; i += grid.m) {
        for (int64_t j = 0; j < n.size; j += grid.n) {
          const DotGrid sizes = {std::min(grid.batch, batch.size - b), std::min(grid.m, m.size - i),
                                 std::min(grid.n, n.size - j)};
          XLAD_ASSIGN_OR_RETURN(const size_t variant, FindOrMakeVariant(sizes));
          tiles_.push_back({variant, b * batch.lhs + i * m.lhs, b * batch.rhs + j * n.rhs,
                            b * batch.result + i * m.result + j * n.result});
        }
      }
    }
    for (const DotVariant& variant : variants_) {
      scratchpad_bytes_ = std::max(scratchpad_bytes_, variant.op.scratchpad_bytes);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> FindOrMakeVariant(const DotGrid& sizes) {
    for (size_t v = 0; v < variants_.size(); ++v) {
      const DotGrid& known = variants_[v].sizes;
      if (known.batch == sizes.batch && known.m == sizes.m && known.n == sizes.n) return v;
    }
    DotVariant variant;
    variant.sizes = sizes;
    XLAD_ASSIGN_OR_RETURN(variant.matrices, DescribeAll(shape_, sizes, Computed()));
    dnnl_matmul_desc_t desc;
    XLAD_RETURN_IF_ERROR(FromDnnl(
        dnnl_matmul_desc_init(&desc, &variant.matrices.lhs, &variant.matrices.rhs, nullptr, &variant.matrices.result),
        "matmul"));
    XLAD_ASSIGN_OR_RETURN(variant.op, MakeDnnlOp(&desc, nullptr));
    variants_.push_back(std::move(variant));
    return variants_.size() - 1;
  }

  // The element types with which oneDNN computes.
  Types Computed() const {
    return plan_.widen ? Types{ElementType::kF32, ElementType::kF32, ElementType::kF32} : types_;
  }

  DotPlan plan_;
  Types types_;
  DotShape shape_;
  Packing lhs_packing_, rhs_packing_;
  std::vector<DotVariant> variants_;
  std::vector<Tile> tiles_;
  bool empty_ = false;
  int64_t result_elements_ = 0;
  int64_t lhs_bytes_ = 0, rhs_bytes_ = 0, result_bytes_ = 0;
  int64_t scratchpad_bytes_ = 0;  // Per thread.
};

// The minimum number of elements in one piece of a conversion or a packing.
constexpr int64_t kMinPiece = 1 << 15;

class DotCall final : public LibraryCall {
 public:
  DotCall(const DnnlDot* dot, int threads) : dot_(*dot), calls_(threads) {}

  absl::Status Prepare() {
    for (std::vector<DnnlCall>& of_thread : calls_) {
      for (const DotVariant& variant : dot_.variants_) {
        XLAD_RETURN_IF_ERROR(of_thread.emplace_back().Prepare(variant.op, {{DNNL_ARG_SRC, variant.matrices.lhs},
                                                                           {DNNL_ARG_WEIGHTS, variant.matrices.rhs},
                                                                           {DNNL_ARG_DST, variant.matrices.result}}));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Run(absl::Span<void* const> buffers, void* scratch, ThreadTeam& team) override {
    void *lhs = buffers[0], *rhs = buffers[1], *result = buffers[2];
    if (dot_.empty_) {
      const int64_t width = tensor::ByteWidth(dot_.types_.result);
      std::memset(result, 0, dot_.result_elements_ * width);
      return absl::OkStatus();
    }
    char* free = static_cast<char*>(scratch);
    const auto take = [&](int64_t bytes) { return std::exchange(free, free + bytes); };
    if (dot_.plan_.pack_lhs) lhs = Packed(dot_.lhs_packing_, dot_.types_.lhs, lhs, take(dot_.lhs_bytes_), team);
    if (dot_.plan_.pack_rhs) rhs = Packed(dot_.rhs_packing_, dot_.types_.rhs, rhs, take(dot_.rhs_bytes_), team);
    void* product = dot_.result_bytes_ > 0 ? take(dot_.result_bytes_) : result;
    XLAD_RETURN_IF_ERROR(RunTiles({static_cast<char*>(lhs), static_cast<char*>(rhs), static_cast<char*>(product)}, free,
                                  team));
    if (product == result) return absl::OkStatus();
    const int64_t width = tensor::ByteWidth(dot_.types_.result);
    team.Run(CeilDiv(dot_.result_elements_, kMinPiece), [&](int, int64_t begin, int64_t end) {
      const int64_t first = begin * kMinPiece, last = std::min(end * kMinPiece, dot_.result_elements_);
      Narrow(dot_.types_.result, static_cast<float*>(product) + first, last - first,
             static_cast<char*>(result) + first * width);
      return 0;
    });
    return absl::OkStatus();
  }

 private:
  struct Addresses {
    char *lhs, *rhs, *result;
  };

  absl::Status RunTiles(const Addresses& at, char* scratchpads, ThreadTeam& team) {
    const Types types = dot_.Computed();
    const int64_t lhs_width = tensor::ByteWidth(types.lhs), rhs_width = tensor::ByteWidth(types.rhs);
    const int64_t result_width = tensor::ByteWidth(types.result);
    const int32_t failed = team.Run(std::ssize(dot_.tiles_), [&](int thread, int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const Tile& tile = dot_.tiles_[t];
        const absl::Status status = calls_[thread][tile.variant].Run(
            {at.lhs + tile.lhs * lhs_width, at.rhs + tile.rhs * rhs_width, at.result + tile.result * result_width},
            scratchpads + thread * dot_.scratchpad_bytes_);
        if (!status.ok()) return 1;
      }
      return 0;
    });
    return failed == 0 ? absl::OkStatus() : absl::InternalError("oneDNN: a tile of a matrix product failed");
  }

  void* Packed(const Packing& packing, ElementType type, const void* from, void* to, ThreadTeam& team) const {
    const int64_t rows = CountRows(packing);
    const int64_t columns = packing.sizes.empty() ? 1 : packing.sizes.back();
    const int64_t step = std::max<int64_t>(1, kMinPiece / std::max<int64_t>(1, columns));
    team.Run(CeilDiv(rows, step), [&](int, int64_t begin, int64_t end) {
      PackRows(packing, KindOf(type, dot_.plan_.widen), from, to, {begin * step, std::min(end * step, rows)});
      return 0;
    });
    return to;
  }

  const DnnlDot& dot_;
  std::vector<std::vector<DnnlCall>> calls_;  // Indexed by thread, then by variant.
};

absl::StatusOr<std::unique_ptr<LibraryCall>> DnnlDot::MakeCall(int threads) const {
  auto call = std::make_unique<DotCall>(this, threads);
  XLAD_RETURN_IF_ERROR(call->Prepare());
  return call;
}

bool IsLibraryType(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kBF16 || type == ElementType::kF16;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareDot(const DotOp& op) {
  if (HasPlainTypes(op)) return PreparePlainDot(op);
  UseOneThread();
  const Types types{tensor::TypeFromWire(op.lhs()), tensor::TypeFromWire(op.rhs()), tensor::TypeFromWire(op.result())};
  if (!IsLibraryType(types.lhs) || !IsLibraryType(types.rhs) || !IsLibraryType(types.result)) {
    return absl::UnimplementedError(absl::StrCat("library op dot: found elements of types ", ToString(types.lhs), ", ",
                                                 ToString(types.rhs), " and ", ToString(types.result),
                                                 ", expected f32, bf16 or f16, or all f64, or s8, s8 and s32"));
  }
  XLAD_ASSIGN_OR_RETURN(DotShape shape, ReadDotShape(op));
  shape.Merge();
  if (types.lhs == ElementType::kF32 && types.rhs == ElementType::kF32 && types.result == ElementType::kF32 &&
      PrefersSmallDot(shape)) {
    return MakeSmallDot(shape);
  }
  const bool direct = types.lhs == types.rhs && types.lhs != ElementType::kF16 && types.result != ElementType::kF16 &&
                      (types.lhs == ElementType::kBF16 || types.result == ElementType::kF32);
  std::vector<DotPlan> plans;
  if (direct) plans = {{false, false, false}, {false, true, false}, {true, false, false}, {true, true, false}};
  plans.push_back({true, true, true});
  std::unique_ptr<DnnlDot> slow;
  absl::Status why;  // Why the last plan cannot be used.
  for (const DotPlan& plan : plans) {
    absl::StatusOr<std::unique_ptr<DnnlDot>> dot = DnnlDot::Try(op, types, plan);
    if (!dot.ok()) {
      why = dot.status();
      continue;
    }
    if ((*dot)->IsFast()) return std::unique_ptr<PreparedLibraryOp>(std::move(*dot));
    if (slow == nullptr) slow = std::move(*dot);
  }
  if (slow == nullptr) return absl::UnimplementedError(absl::StrCat("library op dot: ", why.message()));
  return std::unique_ptr<PreparedLibraryOp>(std::move(slow));
}

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareLibraryOp(const LibraryOp& op) {
  if (op.has_dot()) return PrepareDot(op.dot());
  if (op.has_convolution()) return PrepareConvolution(op.convolution());
  if (op.has_fft()) return PrepareFft(op.fft());
  if (op.has_lapack()) return PrepareLapack(op.lapack());
  if (op.has_attention()) return PrepareAttention(op.attention());
  return absl::InvalidArgumentError(
      "found a library op of an unknown kind, expected dot, convolution, fft, lapack or attention");
}

}  // namespace xlad::runtime
