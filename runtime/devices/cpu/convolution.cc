// Convolutions by oneDNN.
//
// When an executable is loaded, these plans are tried in order: oneDNN chooses the layout of the weights; oneDNN
// chooses the layouts of all three tensors; all tensors keep the layout that they have in the program; and the first
// two plans in f32, for machines without bf16. The first plan that has the fastest kind of implementation is used.
// Tensors whose layout differs are rearranged in scratch memory. The plan that keeps the layout of the weights comes
// late although it rearranges nothing: oneDNN has only its general matrix product for it, which is several times slower
// than code for the shape, and weights are small. The plan is not chosen by measured times, because it determines the
// order of sums and therefore the bits of the result.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "runtime/devices/cpu/convolution_shape.h"
#include "runtime/devices/cpu/dnnl_util.h"
#include "runtime/devices/cpu/library_op.h"
#include "tensor/shape.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

struct Plan {
  bool free_weights, free_rest, widen;
};

constexpr Plan kPlans[] = {
    {true, false, false}, {true, true, false}, {false, false, false}, {true, false, true}, {true, true, true}};

absl::StatusOr<dnnl_memory_desc_t> Describe(const Strided& tensor, ElementType type) {
  dnnl_memory_desc_t desc;
  XLAD_RETURN_IF_ERROR(
      FromDnnl(dnnl_memory_desc_init_by_strides(&desc, static_cast<int>(tensor.sizes.size()), tensor.sizes.data(),
                                                DnnlType(type), tensor.strides.data()),
               "memory description"));
  return desc;
}

absl::StatusOr<dnnl_memory_desc_t> Any(const Strided& tensor, ElementType type) {
  dnnl_memory_desc_t desc;
  XLAD_RETURN_IF_ERROR(FromDnnl(dnnl_memory_desc_init_by_tag(&desc, static_cast<int>(tensor.sizes.size()),
                                                             tensor.sizes.data(), DnnlType(type), dnnl_format_tag_any),
                                "memory description"));
  return desc;
}

// One of the three tensors: its layout in the program, its layout in oneDNN, and the conversion between them.
struct Side {
  int argument;        // DNNL_ARG_*
  dnnl_query_t query;  // Returns the primitive's layout.
  const Strided* tensor;
  ElementType type;
  dnnl_memory_desc_t outside;
  dnnl_memory_desc_t inside;
  DnnlOp reorder;     // Used if the layouts differ.
  int64_t bytes = 0;  // Scratch for the inside layout; 0 if the layouts are equal.
};

class DnnlConvolution final : public PreparedLibraryOp {
 public:
  static absl::StatusOr<std::unique_ptr<DnnlConvolution>> Try(const ConvolutionOp& op, const ConvolutionShape& shape,
                                                              const Plan& plan) {
    auto convolution = std::make_unique<DnnlConvolution>();
    convolution->shape_ = shape;
    XLAD_RETURN_IF_ERROR(convolution->Prepare(op, plan));
    return convolution;
  }

  size_t buffer_count() const override { return 3; }
  int64_t scratch_bytes() const override { return total_bytes_; }
  absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall() const override;
  std::string Description() const override {
    const char* const kinds[] = {"forward ", "backward data ", "backward weights "};
    return absl::StrCat(kinds[static_cast<int>(shape_.kind)], op_.name, sides_[0].bytes > 0 ? ", lhs moved" : "",
                        sides_[1].bytes > 0 ? ", rhs moved" : "", sides_[2].bytes > 0 ? ", result moved" : "");
  }
  // The kind of the implementation: 0 is code that is specific to the shape, 1 is a general matrix product, 2 is plain
  // loops. Lower is faster.
  int Rank() const { return !op_.IsFast() ? 2 : absl::StrContains(op_.name, "gemm") ? 1 : 0; }

 private:
  friend class ConvolutionCall;

  absl::Status Prepare(const ConvolutionOp& op, const Plan& plan) {
    const Side src{DNNL_ARG_SRC, dnnl_query_src_md, &shape_.src, {}, {}, {}, {}, 0};
    const Side weights{DNNL_ARG_WEIGHTS, dnnl_query_weights_md, &shape_.weights, {}, {}, {}, {}, 0};
    const Side dst{DNNL_ARG_DST, dnnl_query_dst_md, &shape_.dst, {}, {}, {}, {}, 0};
    const auto set = [&](size_t i, const Side& side, int argument, dnnl_query_t query) {
      sides_[i].argument = argument;
      sides_[i].query = query;
      sides_[i].tensor = side.tensor;
    };
    // sides_ are the program's lhs, rhs and result.
    switch (shape_.kind) {
      case ConvolutionKind::kForward:
        set(0, src, src.argument, src.query);
        set(1, weights, weights.argument, weights.query);
        set(2, dst, dst.argument, dst.query);
        break;
      case ConvolutionKind::kBackwardData:
        set(0, dst, DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md);
        set(1, weights, weights.argument, weights.query);
        set(2, src, DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md);
        break;
      case ConvolutionKind::kBackwardWeights:
        set(0, src, src.argument, src.query);
        set(1, dst, DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md);
        set(2, weights, DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md);
        break;
    }
    const ArrayShape* shapes[] = {&op.lhs(), &op.rhs(), &op.result()};
    for (size_t i = 0; i < 3; ++i) sides_[i].type = static_cast<ElementType>(shapes[i]->element_type());
    XLAD_RETURN_IF_ERROR(MakePrimitives(plan));
    return PrepareSides();
  }

  absl::Status MakePrimitives(const Plan& plan) {
    dnnl_memory_desc_t wanted[3];  // src, weights, dst
    for (const Side& side : sides_) {
      const size_t which = side.tensor == &shape_.src ? 0 : side.tensor == &shape_.weights ? 1 : 2;
      const ElementType type = plan.widen ? ElementType::kF32 : side.type;
      const bool is_free = which == 1 ? plan.free_weights : plan.free_rest;
      XLAD_ASSIGN_OR_RETURN(wanted[which], is_free ? Any(*side.tensor, type) : Describe(*side.tensor, type));
    }
    const ConvolutionShape& s = shape_;
    dnnl_convolution_desc_t forward;
    XLAD_RETURN_IF_ERROR(Check(dnnl_dilated_convolution_forward_desc_init(
        &forward, dnnl_forward_training, dnnl_convolution_direct, &wanted[0], &wanted[1], nullptr, &wanted[2],
        s.strides.data(), s.dilations.data(), s.padding_low.data(), s.padding_high.data())));
    XLAD_ASSIGN_OR_RETURN(op_, MakeDnnlOp(&forward, nullptr));
    if (s.kind == ConvolutionKind::kForward) return absl::OkStatus();
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
    XLAD_ASSIGN_OR_RETURN(DnnlOp made, MakeDnnlOp(&backward, op_.desc.get()));
    op_ = std::move(made);
    return absl::OkStatus();
  }

  static absl::Status Check(dnnl_status_t status) {
    return status == dnnl_success
               ? absl::OkStatus()
               : absl::UnimplementedError("library op convolution: oneDNN does not support these parameters");
  }

  absl::Status PrepareSides() {
    for (size_t i = 0; i < 3; ++i) {
      Side& side = sides_[i];
      XLAD_ASSIGN_OR_RETURN(side.outside, Describe(*side.tensor, side.type));
      side.inside = op_.Desc(side.query);
      if (dnnl_memory_desc_equal(&side.outside, &side.inside) != 0) continue;
      side.bytes = RoundUpToAlignment(static_cast<int64_t>(dnnl_memory_desc_get_size(&side.inside)));
      XLAD_ASSIGN_OR_RETURN(side.reorder, i == 2 ? MakeDnnlReorder(side.inside, side.outside)
                                                 : MakeDnnlReorder(side.outside, side.inside));
    }
    if (shape_.flip_kernel) {
      flip_bytes_ = RoundUpToAlignment(static_cast<int64_t>(dnnl_memory_desc_get_size(&sides_[1].outside)));
    }
    int64_t most = op_.scratchpad_bytes;
    for (const Side& side : sides_) {
      if (side.bytes > 0) most = std::max(most, side.reorder.scratchpad_bytes);
      total_bytes_ += side.bytes;
    }
    total_bytes_ += flip_bytes_ + most;
    return absl::OkStatus();
  }

  ConvolutionShape shape_;
  Side sides_[3];  // lhs, rhs, result
  DnnlOp op_;
  int64_t flip_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

// Describes the same memory with the spatial dimensions (the last ones) reversed.
void Flip(const Strided& tensor, size_t spatial, int64_t width, const void* from, void* to) {
  const size_t first = tensor.sizes.size() - spatial;
  tensor::Dims index(tensor.sizes.size(), 0);
  do {
    int64_t at = 0, mirrored = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      at += index[d] * tensor.strides[d];
      mirrored += (d < first ? index[d] : tensor.sizes[d] - 1 - index[d]) * tensor.strides[d];
    }
    std::memcpy(static_cast<char*>(to) + at * width, static_cast<const char*>(from) + mirrored * width,
                static_cast<size_t>(width));
  } while (tensor::NextIndex(tensor.sizes, absl::MakeSpan(index)));
}

class ConvolutionCall final : public LibraryCall {
 public:
  explicit ConvolutionCall(const DnnlConvolution* convolution) : c_(*convolution) {}

  absl::Status Prepare() {
    std::vector<std::pair<int, dnnl_memory_desc_t>> arguments;
    for (size_t i = 0; i < 3; ++i) {
      const Side& side = c_.sides_[i];
      arguments.emplace_back(side.argument, side.inside);
      if (side.bytes == 0) continue;
      const bool is_result = i == 2;
      XLAD_RETURN_IF_ERROR(reorders_[i].Prepare(side.reorder, {{DNNL_ARG_FROM, is_result ? side.inside : side.outside},
                                                               {DNNL_ARG_TO, is_result ? side.outside : side.inside}}));
    }
    return call_.Prepare(c_.op_, arguments);
  }

  absl::Status Run(absl::Span<void* const> buffers, void* scratch) override {
    char* free = static_cast<char*>(scratch);
    std::vector<void*> inside(buffers.begin(), buffers.end());
    if (c_.flip_bytes_ > 0) {
      const Side& kernel = c_.sides_[1];
      inside[1] = std::exchange(free, free + c_.flip_bytes_);
      Flip(*kernel.tensor, c_.shape_.strides.size(), tensor::ByteWidth(kernel.type), buffers[1], inside[1]);
    }
    const std::vector<void*> outside = inside;
    for (size_t i = 0; i < 3; ++i) {
      if (c_.sides_[i].bytes > 0) inside[i] = std::exchange(free, free + c_.sides_[i].bytes);
    }
    for (size_t i = 0; i < 2; ++i) {
      if (inside[i] != outside[i]) XLAD_RETURN_IF_ERROR(reorders_[i].Run({outside[i], inside[i]}, free));
    }
    XLAD_RETURN_IF_ERROR(call_.Run(inside, free));
    return inside[2] == outside[2] ? absl::OkStatus() : reorders_[2].Run({inside[2], outside[2]}, free);
  }

 private:
  const DnnlConvolution& c_;
  DnnlCall call_;
  DnnlCall reorders_[3];
};

absl::StatusOr<std::unique_ptr<LibraryCall>> DnnlConvolution::MakeCall() const {
  auto call = std::make_unique<ConvolutionCall>(this);
  XLAD_RETURN_IF_ERROR(call->Prepare());
  return call;
}

bool IsLibraryType(int32_t type) {
  return type == static_cast<int32_t>(ElementType::kF32) || type == static_cast<int32_t>(ElementType::kBF16);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareConvolution(const ConvolutionOp& op) {
  UseOneThread();
  if (!IsLibraryType(op.lhs().element_type()) || op.lhs().element_type() != op.rhs().element_type() ||
      !IsLibraryType(op.result().element_type())) {
    return absl::UnimplementedError("library op convolution: found an element type other than f32 and bf16");
  }
  XLAD_ASSIGN_OR_RETURN(const ConvolutionShape shape, ReadConvolutionShape(op));
  for (const Strided* tensor : {&shape.src, &shape.weights, &shape.dst}) {
    if (tensor::Product(tensor->sizes) == 0) {
      return absl::UnimplementedError("library op convolution: found an array without elements");
    }
  }
  std::unique_ptr<DnnlConvolution> best;
  for (const Plan& plan : kPlans) {
    absl::StatusOr<std::unique_ptr<DnnlConvolution>> convolution = DnnlConvolution::Try(op, shape, plan);
    if (!convolution.ok()) continue;
    if (best == nullptr || (*convolution)->Rank() < best->Rank()) best = *std::move(convolution);
    if (best->Rank() == 0) break;
  }
  if (best == nullptr) return absl::UnimplementedError("library op convolution: oneDNN has no implementation for it");
  return std::unique_ptr<PreparedLibraryOp>(std::move(best));
}

}  // namespace xlad::runtime
