// Convolutions by oneDNN.
//
// When an executable is loaded, plans are tried in this order. In the first plan, oneDNN chooses the layout of the
// weights; in the second, the layouts of all three tensors; in the third, all tensors keep their layouts in the
// program. The fourth and fifth plans are the first two in f32, for machines without bf16. The first plan that has the
// fastest kind of implementation is used. Tensors whose layout differs are rearranged in scratch memory. The plan that
// keeps all layouts rearranges nothing, but oneDNN computes it by a general matrix product, which is several times
// slower than code for the specific shape. That plan is tried late, because weights are small and rearranging them
// costs little. The plan is not chosen by measured times, because the plan determines the order of sums and therefore
// the bits of the result.
//
// There is one exception. oneDNN's code for AVX2 computes gradients from channels-last tensors, but it is 1.07 to 1.64
// times as fast for tensors in blocks of features, which the second plan has. So that plan is used for gradients if
// there are enough features, although tensors must be rearranged. With the time for rearranging, it is 0.92 to 1.43
// times as fast (decision 86).
//
// A convolution is divided into tiles, each of which is one call of oneDNN by one thread. Tiles are parts of the batch
// or, if the result is the gradient of the weights, parts of the weights' output features. If the weights have several
// groups or at most kFeaturesOfBlock output features, tiles of a gradient in f32 are parts of the batch. Each tile then
// computes a part of the sum, and the parts are added in their order. The tensor that all tiles read is rearranged
// before the tiles run. The division depends on the shape alone.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "runtime/devices/cpu/convolution_shape.h"
#include "runtime/devices/cpu/dnnl_util.h"
#include "runtime/devices/cpu/library_op.h"
#include "tensor/shape.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

struct Plan {
  bool free_weights, free_rest, widen;
};

constexpr Plan kFreePlan = {true, true, false};
constexpr Plan kPlans[] = {
    {true, false, false}, kFreePlan, {false, false, false}, {true, false, true}, {true, true, true}};

absl::StatusOr<dnnl_memory_desc_t> Describe(const Strided& tensor, ElementType type) {
  dnnl_memory_desc_t desc;
  XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_memory_desc_init_by_strides(&desc, tensor.sizes.size(), tensor.sizes.data(),
                                                                 DnnlType(type), tensor.strides.data()),
                                "memory description"));
  return desc;
}

absl::StatusOr<dnnl_memory_desc_t> Any(const Strided& tensor, ElementType type) {
  dnnl_memory_desc_t desc;
  XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_memory_desc_init_by_tag(&desc, tensor.sizes.size(), tensor.sizes.data(),
                                                             DnnlType(type), dnnl_format_tag_any),
                                "memory description"));
  return desc;
}

// Returns the tensor with the same order of dimensions in memory, but without gaps.
Strided Dense(const Strided& tensor) {
  std::vector<size_t> order(tensor.sizes.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = d;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t x, size_t y) { return tensor.strides[x] < tensor.strides[y]; });
  Strided dense = tensor;
  int64_t stride = 1;
  for (const size_t d : order) {
    dense.strides[d] = stride;
    stride *= tensor.sizes[d];
  }
  return dense;
}

// The tensor with `size` elements in dimension `dim`.
Strided Part(Strided tensor, size_t dim, int64_t size) {
  tensor.sizes[dim] = size;
  return tensor;
}

constexpr size_t kNone = std::numeric_limits<size_t>::max();

// One of the three tensors of the program: lhs, rhs or result.
struct Side {
  int argument;        // oneDNN's number of the argument, DNNL_ARG_*.
  dnnl_query_t query;  // The query for the primitive's layout of this tensor.
  const Strided* tensor;
  size_t which;             // 0: src, 1: weights, 2: dst.
  size_t tiled_dim;         // The dimension of which each tile has a part; kNone if all tiles read the whole tensor.
  ElementType type;
  int64_t bytes = 0;  // The size of the scratch memory for the primitive's layout of a tile, or of the whole tensor.
};

// The primitives for tiles of one size.
struct Variant {
  int64_t size = 0;
  DnnlOp op;
  dnnl_memory_desc_t outside[3], inside[3];  // The layouts of the tile in the program and in the primitive.
  DnnlOp reorder[3];  // Conversion between the two layouts if they differ. Unused for the tensor that all tiles read.
  bool moved[3] = {false, false, false};
};

// A part of the tensor that all tiles read. Threads rearrange the parts in parallel.
struct SharedPart {
  dnnl_memory_desc_t outside, inside;
  DnnlOp reorder;
};

constexpr double kMinTileFlops = 2e6;  // This takes about 20 microseconds.
constexpr int64_t kMaxTiles = 32;
constexpr int64_t kFeaturesOfBlock = 16;
// If a gradient of weights has one block of features, or groups, the batch is divided into at most kMaxParts parts.
// In the average part, each weight is the sum of at least kMinPositions products.
constexpr int64_t kMaxParts = 8, kMinPositions = 256;
// Gradients with fewer features of the input take as long in any layout.
constexpr int64_t kMinFeaturesOfFreePlan = 32;

class DnnlConvolution final : public PreparedLibraryOp {
 public:
  // If `tiled` is false, there is one tile.
  static absl::StatusOr<std::unique_ptr<DnnlConvolution>> Try(const ConvolutionOp& op, const ConvolutionShape& shape,
                                                              const Plan& plan, bool tiled) {
    auto convolution = std::make_unique<DnnlConvolution>();
    convolution->shape_ = shape;
    XLAD_RETURN_IF_ERROR(convolution->Prepare(op, plan, tiled));
    return convolution;
  }

  size_t buffer_count() const override { return 3; }
  int64_t scratch_bytes(int threads) const override { return shared_bytes_ + threads * thread_bytes_; }
  absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall(int threads) const override;
  std::string Description() const override {
    const char* const kinds[] = {"forward ", "backward data ", "backward weights "};
    return absl::StrCat(kinds[static_cast<int>(shape_.kind)], variants_[0].op.name,
                        tiles_ > 1 ? absl::StrCat(", ", tiles_, adds_tiles_ ? " tiles added" : " tiles") : "",
                        sides_[0].bytes > 0 ? ", lhs moved" : "", sides_[1].bytes > 0 ? ", rhs moved" : "",
                        sides_[2].bytes > 0 ? ", result moved" : "");
  }
  bool needs_matrix_code() const override {
    return std::any_of(variants_.begin(), variants_.end(),
                       [](const Variant& variant) { return variant.op.IsMatrixProduct(); });
  }
  // The kind of the implementation: 0 is code that is specific to the shape, 1 is a general matrix product, 2 is plain
  // loops. Lower is faster.
  int ImplementationKind() const {
    int kind = 0;
    for (const Variant& variant : variants_) {
      kind = std::max(kind, !variant.op.IsFast() ? 2 : variant.op.IsMatrixProduct() ? 1 : 0);
    }
    return kind;
  }
  // Whether this plan keeps layouts, and the plan in which oneDNN chooses them is probably faster.
  bool IsSlowerThanFree() const {
    const bool has_groups = shape_.weights.sizes.size() > shape_.src.sizes.size();
    return shape_.kind != ConvolutionKind::kForward && !has_groups && ImplementationKind() == 0 &&
           sides_[0].bytes == 0 && shape_.src.sizes[1] >= kMinFeaturesOfFreePlan &&
           absl::StrContains(variants_[0].op.name, "avx2");
  }

 private:
  friend class ConvolutionCall;

  absl::Status Prepare(const ConvolutionOp& op, const Plan& plan, bool tiled) {
    SetSides(op);
    ChooseTiles(tiled);
    XLAD_RETURN_IF_ERROR(AddVariant(plan, tile_size_));
    if (total_ % tile_size_ != 0) XLAD_RETURN_IF_ERROR(AddVariant(plan, total_ % tile_size_));
    XLAD_RETURN_IF_ERROR(PrepareShared());
    if (adds_tiles_) XLAD_RETURN_IF_ERROR(PrepareAddition());
    int64_t scratchpad = 0;
    for (const Variant& variant : variants_) {
      scratchpad = std::max(scratchpad, variant.op.scratchpad_bytes);
      for (size_t i = 0; i < 3; ++i) {
        if (variant.moved[i]) scratchpad = std::max(scratchpad, variant.reorder[i].scratchpad_bytes);
      }
    }
    if (shape_.flip_kernel) {
      const int64_t weight_bytes = tensor::Product(shape_.weights.sizes) * tensor::ByteWidth(sides_[1].type);
      flip_bytes_ = RoundUp(weight_bytes, XLAD_BUFFER_ALIGNMENT);
    }
    for (const SharedPart& part : shared_parts_) scratchpad = std::max(scratchpad, part.reorder.scratchpad_bytes);
    if (adds_tiles_) scratchpad = std::max(scratchpad, result_reorder_.scratchpad_bytes);
    shared_bytes_ = flip_bytes_ + tiles_ * part_bytes_;
    thread_bytes_ = scratchpad;
    for (const Side& side : sides_) (side.tiled_dim == kNone ? shared_bytes_ : thread_bytes_) += side.bytes;
    return absl::OkStatus();
  }

  void SetSides(const ConvolutionOp& op) {
    const bool has_groups = shape_.weights.sizes.size() > shape_.src.sizes.size();
    const Side src{DNNL_ARG_SRC, dnnl_query_src_md, &shape_.src, 0, 0, {}, 0};
    const Side weights{DNNL_ARG_WEIGHTS, dnnl_query_weights_md, &shape_.weights, 1, kNone, {}, 0};
    const Side dst{DNNL_ARG_DST, dnnl_query_dst_md, &shape_.dst, 2, 0, {}, 0};
    switch (shape_.kind) {
      case ConvolutionKind::kForward:
        sides_[0] = src, sides_[1] = weights, sides_[2] = dst;
        break;
      case ConvolutionKind::kBackwardData:
        sides_[0] = dst, sides_[1] = weights, sides_[2] = src;
        sides_[0].argument = DNNL_ARG_DIFF_DST, sides_[0].query = dnnl_query_diff_dst_md;
        sides_[2].argument = DNNL_ARG_DIFF_SRC, sides_[2].query = dnnl_query_diff_src_md;
        break;
      case ConvolutionKind::kBackwardWeights:
        sides_[0] = src, sides_[1] = dst, sides_[2] = weights;
        sides_[1].argument = DNNL_ARG_DIFF_DST, sides_[1].query = dnnl_query_diff_dst_md;
        sides_[2].argument = DNNL_ARG_DIFF_WEIGHTS, sides_[2].query = dnnl_query_diff_weights_md;
        // Features of all groups are one dimension of dst but two of weights, so groups are not divided.
        sides_[0].tiled_dim = kNone, sides_[1].tiled_dim = has_groups ? kNone : 1, sides_[2].tiled_dim = 0;
        break;
    }
    can_divide_ = shape_.kind != ConvolutionKind::kBackwardWeights || !has_groups;
    const ArrayShape* shapes[] = {&op.lhs(), &op.rhs(), &op.result()};
    for (size_t i = 0; i < 3; ++i) sides_[i].type = tensor::TypeFromWire(*shapes[i]);
  }

  void ChooseTiles(bool tiled) {
    const bool is_gradient = shape_.kind == ConvolutionKind::kBackwardWeights;
    total_ = tile_size_ = is_gradient ? shape_.weights.sizes[0] : shape_.src.sizes[0];
    tiles_ = 1;
    if (!tiled) return;
    // For each position of dst, each element of the weights is multiplied with one element of src.
    const int64_t positions = tensor::Product(shape_.dst.sizes) / shape_.dst.sizes[1];
    const double flops =
        2 * static_cast<double>(positions) * static_cast<double>(tensor::Product(shape_.weights.sizes));
    const double worth = std::min(flops / kMinTileFlops, 1e6);
    const int64_t wanted = std::clamp<int64_t>(worth, 1, kMaxTiles);
    const int64_t blocks = can_divide_ ? CeilDiv(total_, kFeaturesOfBlock) : 1;
    const int64_t parts = std::min({wanted, kMaxParts, positions / kMinPositions, shape_.src.sizes[0]});
    adds_tiles_ = is_gradient && sides_[2].type == ElementType::kF32 && blocks == 1 && parts > 1;
    if (adds_tiles_) {
      total_ = shape_.src.sizes[0];
      tile_size_ = CeilDiv(total_, parts);
      sides_[0].tiled_dim = sides_[1].tiled_dim = 0;
      sides_[2].tiled_dim = kNone;
    } else if (can_divide_) {
      tile_size_ = CeilDiv(total_, wanted);
      if (is_gradient) tile_size_ = std::min(total_, RoundUp(tile_size_, kFeaturesOfBlock));
    }
    tiles_ = CeilDiv(total_, tile_size_);
    adds_tiles_ = adds_tiles_ && tiles_ > 1;
  }

  absl::Status AddVariant(const Plan& plan, int64_t size) {
    Variant variant;
    variant.size = size;
    dnnl_memory_desc_t wanted[3];  // src, weights, dst
    for (size_t i = 0; i < 3; ++i) {
      const Side& side = sides_[i];
      const Strided tensor = side.tiled_dim == kNone ? *side.tensor : Part(*side.tensor, side.tiled_dim, size);
      const ElementType type = plan.widen ? ElementType::kF32 : side.type;
      const bool is_free = side.which == 1 ? plan.free_weights : plan.free_rest;
      XLAD_ASSIGN_OR_RETURN(variant.outside[i], Describe(tensor, side.type));
      XLAD_ASSIGN_OR_RETURN(wanted[side.which],
                            is_free ? Any(tensor, type)
                                    : Describe(tiles_ > 1 && side.tiled_dim != kNone ? Dense(tensor) : tensor, type));
      // All tiles read the shared tensor in the layout of the first variant.
      if (side.tiled_dim == kNone && !variants_.empty()) wanted[side.which] = variants_[0].inside[i];
    }
    XLAD_ASSIGN_OR_RETURN(variant.op, MakePrimitive(wanted));
    for (size_t i = 0; i < 3; ++i) {
      variant.inside[i] = variant.op.Desc(sides_[i].query);
      if (dnnl_memory_desc_equal(&variant.outside[i], &variant.inside[i]) != 0) continue;
      const int64_t inside_bytes = dnnl_memory_desc_get_size(&variant.inside[i]);
      const int64_t bytes = RoundUp(inside_bytes, XLAD_BUFFER_ALIGNMENT);
      sides_[i].bytes = std::max(sides_[i].bytes, bytes);
      if (sides_[i].tiled_dim == kNone) continue;
      variant.moved[i] = true;
      XLAD_ASSIGN_OR_RETURN(variant.reorder[i], i == 2 ? MakeDnnlReorder(variant.inside[i], variant.outside[i])
                                                       : MakeDnnlReorder(variant.outside[i], variant.inside[i]));
    }
    variants_.push_back(std::move(variant));
    return absl::OkStatus();
  }

  absl::StatusOr<DnnlOp> MakePrimitive(const dnnl_memory_desc_t (&wanted)[3]) const {
    const ConvolutionShape& s = shape_;
    dnnl_convolution_desc_t forward;
    XLAD_RETURN_IF_ERROR(Check(dnnl_dilated_convolution_forward_desc_init(
        &forward, dnnl_forward_training, dnnl_convolution_direct, &wanted[0], &wanted[1], nullptr, &wanted[2],
        s.strides.data(), s.dilations.data(), s.padding_low.data(), s.padding_high.data())));
    XLAD_ASSIGN_OR_RETURN(DnnlOp op, MakeDnnlOp(&forward, nullptr));
    if (s.kind == ConvolutionKind::kForward) return op;
    dnnl_convolution_desc_t backward;
    if (s.kind == ConvolutionKind::kBackwardData) {
      XLAD_RETURN_IF_ERROR(Check(dnnl_dilated_convolution_backward_data_desc_init(
          &backward, dnnl_convolution_direct, &wanted[0], &wanted[1], &wanted[2], s.strides.data(), s.dilations.data(),
          s.padding_low.data(), s.padding_high.data())));
    } else {
      XLAD_RETURN_IF_ERROR(Check(dnnl_dilated_convolution_backward_weights_desc_init(
          &backward, dnnl_convolution_direct, &wanted[0], &wanted[1], nullptr, &wanted[2], s.strides.data(),
          s.dilations.data(), s.padding_low.data(), s.padding_high.data())));
    }
    return MakeDnnlOp(&backward, op.desc.get());
  }

  static absl::Status Check(dnnl_status_t status) {
    return status == dnnl_success
               ? absl::OkStatus()
               : absl::UnimplementedError("library op convolution: oneDNN does not support these parameters");
  }

  // Divides the shared tensor along its first dimension into parts of whole blocks of its layout.
  absl::Status PrepareShared() {
    constexpr int64_t kMinBytes = 256 << 10, kBlock = 64;
    for (size_t i = 0; i < 2; ++i) {
      const Side& side = sides_[i];
      if (side.tiled_dim != kNone || side.bytes == 0) continue;
      const int64_t length = side.tensor->sizes[0];
      int64_t step = std::max<int64_t>(1, length / std::max<int64_t>(1, side.bytes / kMinBytes));
      if (side.which == 1) step = RoundUp(step, kBlock);
      for (int64_t first = 0; first < length; first += step) {
        XLAD_ASSIGN_OR_RETURN(SharedPart part, MakeSharedPart(i, first, std::min(step, length - first)));
        shared_parts_.push_back(std::move(part));
      }
    }
    return absl::OkStatus();
  }

  // Each tile's part of the sum is in the layout of the primitives.
  absl::Status PrepareAddition() {
    const Variant& variant = variants_[0];
    part_bytes_ = std::exchange(sides_[2].bytes, 0);
    result_moved_ = part_bytes_ > 0;
    if (!result_moved_) {
      part_bytes_ = RoundUp(dnnl_memory_desc_get_size(&variant.inside[2]), XLAD_BUFFER_ALIGNMENT);
      return absl::OkStatus();
    }
    XLAD_ASSIGN_OR_RETURN(result_reorder_, MakeDnnlReorder(variant.inside[2], variant.outside[2]));
    return absl::OkStatus();
  }

  absl::StatusOr<SharedPart> MakeSharedPart(size_t side, int64_t first, int64_t count) const {
    SharedPart part;
    const Variant& variant = variants_[0];
    dnnl_dims_t sizes, offsets = {};
    std::copy(variant.outside[side].dims, variant.outside[side].dims + variant.outside[side].ndims, sizes);
    sizes[0] = count;
    offsets[0] = first;
    XLAD_RETURN_IF_ERROR(
        Check(dnnl_memory_desc_init_submemory(&part.outside, &variant.outside[side], sizes, offsets)));
    XLAD_RETURN_IF_ERROR(Check(dnnl_memory_desc_init_submemory(&part.inside, &variant.inside[side], sizes, offsets)));
    XLAD_ASSIGN_OR_RETURN(part.reorder, MakeDnnlReorder(part.outside, part.inside));
    return part;
  }

  // The offset of a tile's part of a tensor, in elements.
  int64_t OffsetOf(size_t side, int64_t tile) const {
    const Side& s = sides_[side];
    return s.tiled_dim == kNone ? 0 : tile * tile_size_ * s.tensor->strides[s.tiled_dim];
  }
  size_t VariantOf(int64_t tile) const { return tile + 1 == tiles_ ? variants_.size() - 1 : 0; }

  ConvolutionShape shape_;
  Side sides_[3];  // lhs, rhs, result
  bool can_divide_ = true;
  bool adds_tiles_ = false;    // Whether the result is the sum of the tiles' results.
  int64_t part_bytes_ = 0;     // The size of a tile's result if adds_tiles_, otherwise 0.
  bool result_moved_ = false;  // Whether the sum has a different layout than the result.
  DnnlOp result_reorder_;
  int64_t total_ = 0, tile_size_ = 0, tiles_ = 0;
  std::vector<Variant> variants_;
  std::vector<SharedPart> shared_parts_;
  int64_t flip_bytes_ = 0;
  // The sizes of the scratch memory that all threads share, and of the scratch memory of each thread.
  int64_t shared_bytes_ = 0;
  int64_t thread_bytes_ = 0;
};

// Copies a tensor whose elements have `width` bytes, with its last `spatial` dimensions reversed.
void Flip(const Strided& tensor, size_t spatial, int64_t width, const void* from, void* to) {
  const size_t first = tensor.sizes.size() - spatial;
  tensor::Dims index(tensor.sizes.size(), 0);
  do {
    int64_t at = 0, mirrored = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      at += index[d] * tensor.strides[d];
      mirrored += (d < first ? index[d] : tensor.sizes[d] - 1 - index[d]) * tensor.strides[d];
    }
    std::memcpy(static_cast<char*>(to) + at * width, static_cast<const char*>(from) + mirrored * width, width);
  } while (tensor::NextIndex(tensor.sizes, absl::MakeSpan(index)));
}

class ConvolutionCall final : public LibraryCall {
 public:
  ConvolutionCall(const DnnlConvolution* convolution, int threads) : c_(*convolution), threads_(threads) {}

  absl::Status Prepare() {
    for (OfThread& mine : threads_) {
      mine.variants.resize(c_.variants_.size());
      for (size_t v = 0; v < c_.variants_.size(); ++v) {
        const Variant& variant = c_.variants_[v];
        std::vector<std::pair<int, dnnl_memory_desc_t>> arguments;
        for (size_t i = 0; i < 3; ++i) {
          arguments.emplace_back(c_.sides_[i].argument, variant.inside[i]);
          if (!variant.moved[i]) continue;
          XLAD_RETURN_IF_ERROR(mine.variants[v].reorders[i].Prepare(
              variant.reorder[i], {{DNNL_ARG_FROM, i == 2 ? variant.inside[i] : variant.outside[i]},
                                   {DNNL_ARG_TO, i == 2 ? variant.outside[i] : variant.inside[i]}}));
        }
        XLAD_RETURN_IF_ERROR(mine.variants[v].call.Prepare(variant.op, arguments));
      }
    }
    for (const SharedPart& part : c_.shared_parts_) {
      XLAD_RETURN_IF_ERROR(shared_.emplace_back().Prepare(
          part.reorder, {{DNNL_ARG_FROM, part.outside}, {DNNL_ARG_TO, part.inside}}));
    }
    if (c_.result_moved_) {
      const Variant& variant = c_.variants_[0];
      return result_reorder_.Prepare(c_.result_reorder_,
                                     {{DNNL_ARG_FROM, variant.inside[2]}, {DNNL_ARG_TO, variant.outside[2]}});
    }
    return absl::OkStatus();
  }

  absl::Status Run(absl::Span<void* const> buffers, void* scratch, ThreadTeam& team) override {
    char* free = static_cast<char*>(scratch);
    Addresses at;
    for (size_t i = 0; i < 3; ++i) at[i] = static_cast<char*>(buffers[i]);
    char* const thread_memory = free + c_.shared_bytes_;
    parts_ = std::exchange(free, free + c_.tiles_ * c_.part_bytes_);
    if (c_.flip_bytes_ > 0) {
      const Side& kernel = c_.sides_[1];
      at[1] = std::exchange(free, free + c_.flip_bytes_);
      Flip(*kernel.tensor, c_.shape_.strides.size(), tensor::ByteWidth(kernel.type), buffers[1], at[1]);
    }
    for (size_t i = 0; i < 2; ++i) {
      const Side& side = c_.sides_[i];
      if (side.tiled_dim != kNone || side.bytes == 0) continue;
      char* const inside = std::exchange(free, free + side.bytes);
      const int32_t failed = team.Run(std::ssize(shared_), [&](int thread, int64_t begin, int64_t end) {
        for (int64_t part = begin; part < end; ++part) {
          if (!shared_[part].Run({at[i], inside}, thread_memory + thread * c_.thread_bytes_).ok()) return 1;
        }
        return 0;
      });
      if (failed != 0) return Failed();
      at[i] = inside;
    }
    const int32_t failed = team.Run(c_.tiles_, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) {
        if (!RunTile(thread, tile, at, thread_memory + thread * c_.thread_bytes_).ok()) return 1;
      }
      return 0;
    });
    if (failed != 0) return Failed();
    return c_.adds_tiles_ ? AddTiles(at[2], thread_memory, team) : absl::OkStatus();
  }

 private:
  using Addresses = std::array<char*, 3>;
  struct OfVariant {
    DnnlCall call;
    DnnlCall reorders[3];
  };
  struct OfThread {
    std::vector<OfVariant> variants;
  };

  static absl::Status Failed() { return absl::InternalError("oneDNN: a tile of a convolution failed"); }

  absl::Status AddTiles(char* result, char* thread_memory, ThreadTeam& team) {
    constexpr int64_t kMinPiece = 1 << 14;
    const int64_t elements = c_.part_bytes_ / 4;
    // A tile's part may be padded to whole cache lines, but the result is not.
    const int64_t count = c_.result_moved_ ? elements : tensor::Product(c_.shape_.weights.sizes);
    float* const sum = reinterpret_cast<float*>(c_.result_moved_ ? parts_ : result);
    const float* const parts = reinterpret_cast<const float*>(parts_);
    team.Run(CeilDiv(count, kMinPiece), [&](int, int64_t begin, int64_t end) {
      const int64_t last = std::min(count, end * kMinPiece);
      for (int64_t i = begin * kMinPiece; i < last; ++i) {
        float x = parts[i];
        for (int64_t tile = 1; tile < c_.tiles_; ++tile) x += parts[tile * elements + i];
        sum[i] = x;
      }
      return 0;
    });
    return c_.result_moved_ ? result_reorder_.Run({parts_, result}, thread_memory) : absl::OkStatus();
  }

  absl::Status RunTile(int thread, int64_t tile, const Addresses& at, char* free) {
    const size_t v = c_.VariantOf(tile);
    const Variant& variant = c_.variants_[v];
    OfVariant& calls = threads_[thread].variants[v];
    void *outside[3], *inside[3];
    for (size_t i = 0; i < 3; ++i) {
      outside[i] = at[i] + c_.OffsetOf(i, tile) * tensor::ByteWidth(c_.sides_[i].type);
      inside[i] = variant.moved[i] ? std::exchange(free, free + c_.sides_[i].bytes) : outside[i];
    }
    for (size_t i = 0; i < 2; ++i) {
      if (variant.moved[i]) XLAD_RETURN_IF_ERROR(calls.reorders[i].Run({outside[i], inside[i]}, free));
    }
    if (c_.adds_tiles_) inside[2] = parts_ + tile * c_.part_bytes_;
    XLAD_RETURN_IF_ERROR(calls.call.Run(inside, free));
    return variant.moved[2] ? calls.reorders[2].Run({inside[2], outside[2]}, free) : absl::OkStatus();
  }

  const DnnlConvolution& c_;
  std::vector<OfThread> threads_;
  std::vector<DnnlCall> shared_;
  char* parts_ = nullptr;  // In the scratch memory of the current call.
  DnnlCall result_reorder_;
};

absl::StatusOr<std::unique_ptr<LibraryCall>> DnnlConvolution::MakeCall(int threads) const {
  auto call = std::make_unique<ConvolutionCall>(this, threads);
  XLAD_RETURN_IF_ERROR(call->Prepare());
  return call;
}

bool HasLibraryType(const ArrayShape& shape) {
  const ElementType type = tensor::TypeFromWire(shape);
  return type == ElementType::kF32 || type == ElementType::kBF16;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareConvolution(const ConvolutionOp& op) {
  UseOneThread();
  if (!HasLibraryType(op.lhs()) || op.lhs().element_type() != op.rhs().element_type() || !HasLibraryType(op.result())) {
    const auto name = [](const ArrayShape& shape) {
      return tensor::ToString(tensor::TypeFromWire(shape));
    };
    return absl::UnimplementedError(absl::StrCat("library op convolution: found operands of types ", name(op.lhs()),
                                                 " and ", name(op.rhs()), " and a result of type ", name(op.result()),
                                                 ", expected f32 or bf16, and equal types of the operands"));
  }
  XLAD_ASSIGN_OR_RETURN(const ConvolutionShape shape, ReadConvolutionShape(op));
  for (const Strided* tensor : {&shape.src, &shape.weights, &shape.dst}) {
    if (tensor::Product(tensor->sizes) == 0) {
      return absl::UnimplementedError(absl::StrCat("library op convolution: found an array of sizes [",
                                                   absl::StrJoin(tensor->sizes, ","),
                                                   "], expected 1 or more elements"));
    }
  }
  std::unique_ptr<DnnlConvolution> best;
  for (const Plan& plan : kPlans) {
    for (const bool tiled : {true, false}) {
      absl::StatusOr<std::unique_ptr<DnnlConvolution>> convolution = DnnlConvolution::Try(op, shape, plan, tiled);
      if (!convolution.ok()) continue;
      if ((*convolution)->IsSlowerThanFree()) {
        auto free = DnnlConvolution::Try(op, shape, kFreePlan, tiled);
        if (free.ok() && (*free)->ImplementationKind() == 0) convolution = std::move(free);
      }
      if (best == nullptr || (*convolution)->ImplementationKind() < best->ImplementationKind()) {
        best = *std::move(convolution);
      }
      if (best->ImplementationKind() == 0) break;
    }
    if (best != nullptr && best->ImplementationKind() == 0) break;
  }
  if (best == nullptr) return absl::UnimplementedError("library op convolution: oneDNN has no implementation for it");
  return std::unique_ptr<PreparedLibraryOp>(std::move(best));
}

}  // namespace xlad::runtime
