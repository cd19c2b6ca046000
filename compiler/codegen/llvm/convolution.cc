// convolution: its element rule, and convolutions as products of matrices in blocks (implicit GEMM).
//
// The rows of a product are the output's batch and spatial positions, its columns the output features of one group, and
// its depth the window positions and the input features of a group. Elements of the padding and of gaps are zero.
#include <algorithm>

#include "base/containers.h"
#include "base/rounding.h"
#include "compiler/analysis/kernel_cost.h"
#include "compiler/codegen/llvm/blocked_product.h"
#include "compiler/codegen/llvm/reducer.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using tensor::Dims;

class ConvolutionIndices {
 public:
  explicit ConvolutionIndices(Elements* elements, const Instruction& conv)
      : elements_(*elements),
        ir_(elements->ir()),
        conv_(conv),
        n_(*conv.attributes().convolution),
        window_(*conv.attributes().window),
        input_(conv.operand(0)->shape().dims()),
        kernel_(conv.operand(1)->shape().dims()) {
    for (const hlo::WindowDimension& d : window_) depth_sizes_.push_back(d.size);
    for (const int64_t d : n_.input_spatial) base_.push_back(input_[d]);
    depth_sizes_.push_back(kernel_[n_.kernel_input_feature]);
  }

  int64_t feature_groups() const { return conv_.attributes().feature_group_count; }
  int64_t batch_groups() const { return conv_.attributes().batch_group_count; }
  // At most one of the counts is not 1.
  int64_t groups() const { return feature_groups() * batch_groups(); }
  int64_t features() const { return kernel_[n_.kernel_output_feature] / groups(); }
  const Dims& depth_sizes() const { return depth_sizes_; }

  // The index of the base for a spatial index of the output and an index of the depth.
  WindowPosition InBase(const Values& spatial, const Values& depth) const {
    return PositionInBase(ir_, window_, spatial, depth, base_);
  }
  // The index of the input for an index of the base.
  Values Input(llvm::Value* group, llvm::Value* batch, const Values& base, llvm::Value* in_feature) const {
    Values at(input_.size());
    const bool by_batch = batch_groups() != 1;
    at[n_.input_batch] = by_batch ? ir_.Add(ir_.Mul(group, input_[n_.input_batch] / batch_groups()), batch) : batch;
    at[n_.input_feature] = by_batch || groups() == 1
                               ? in_feature
                               : ir_.Add(ir_.Mul(group, kernel_[n_.kernel_input_feature]), in_feature);
    for (size_t d = 0; d < base.size(); ++d) at[n_.input_spatial[d]] = base[d];
    return at;
  }
  Values Kernel(llvm::Value* out_feature, const Values& depth) const {
    Values at(kernel_.size());
    at[n_.kernel_output_feature] = out_feature;
    at[n_.kernel_input_feature] = depth.back();
    for (size_t d = 0; d < window_.size(); ++d) {
      llvm::Value* tap = depth[d];
      if (window_[d].window_reversal) tap = ir_.b.CreateSub(ir_.I64(window_[d].size - 1), tap);
      at[n_.kernel_spatial[d]] = tap;
    }
    return at;
  }

 protected:
  Elements& elements_;
  Ir& ir_;
  const Instruction& conv_;
  const hlo::ConvolutionDimensions& n_;
  const hlo::Window& window_;
  const Dims &input_, &kernel_;
  Dims depth_sizes_, base_;
};

// The matrices of a group.
class ConvolutionMatrices : public ConvolutionIndices {
 public:
  ConvolutionMatrices(Elements* elements, const Instruction& conv) : ConvolutionIndices(elements, conv) {
    for (int64_t d = 0; d < conv.shape().ndim(); ++d) {
      if (d != n_.output_feature) rows_.push_back(d);
    }
    row_sizes_ = tensor::Select(conv.shape().dims(), rows_);
  }

  MatrixSizes Sizes() const {
    return {groups(), tensor::Product(row_sizes_), features(), tensor::Product(depth_sizes_)};
  }

  ProductMatrix Lhs(llvm::Value* group) const {
    ProductMatrix matrix;
    matrix.element = [this, group](llvm::Value* line, llvm::Value* depth) {
      return InputElement(group, line, DimsOf(ir_, Index::OfLinear(depth), depth_sizes_));
    };
    // The input features of a window position.
    if (n_.input_feature == std::ssize(input_) - 1) matrix.run = depth_sizes_.back();
    matrix.element_in_run = [this, group](llvm::Value* line, llvm::Value* first, llvm::Value* within) {
      Values in_depth = DimsOf(ir_, Index::OfLinear(first), depth_sizes_);
      in_depth.back() = ir_.Add(in_depth.back(), within);
      return InputElement(group, line, in_depth);
    };
    matrix.place = [this](llvm::Value* line) {
      const Values row = DimsOf(ir_, Index::OfLinear(line), row_sizes_);
      llvm::Value* place = ir_.I64(0);
      const Dims strides = tensor::Strides(conv_.shape().dims());
      for (size_t d = 0; d < rows_.size(); ++d) place = ir_.Add(place, ir_.Mul(row[d], strides[rows_[d]]));
      return place;
    };
    return matrix;
  }

  ProductMatrix Rhs(llvm::Value* group) const {
    ProductMatrix matrix;
    matrix.element = [this, group](llvm::Value* line, llvm::Value* depth) {
      const Values in_depth = DimsOf(ir_, Index::OfLinear(depth), depth_sizes_);
      return EmitFactor(elements_, conv_, 1, Kernel(OutFeature(group, line), in_depth));
    };
    matrix.place = [this, group](llvm::Value* line) {
      return ir_.Mul(OutFeature(group, line), tensor::Strides(conv_.shape().dims())[n_.output_feature]);
    };
    return matrix;
  }

 private:
  llvm::Value* OutFeature(llvm::Value* group, llvm::Value* line) const {
    return ir_.Add(ir_.Mul(group, features()), line);
  }
  // The factor at a row and an index of the depth. It is zero outside of the base.
  llvm::Value* InputElement(llvm::Value* group, llvm::Value* line, const Values& in_depth) const {
    const Values row = DimsOf(ir_, Index::OfLinear(line), row_sizes_);
    Values spatial;
    for (const int64_t d : n_.output_spatial) spatial.push_back(row[PlaceInRows(d)]);
    WindowPosition position = InBase(spatial, in_depth);
    // The element at index 0 is read instead of an element outside of the base.
    for (llvm::Value*& index : position.index) index = ir_.b.CreateSelect(position.inside, index, ir_.I64(0));
    llvm::Value* value = EmitFactor(elements_, conv_, 0,
                                    Input(group, row[PlaceInRows(n_.output_batch)], position.index, in_depth.back()));
    return SelectFactor(position.inside, value);
  }
  size_t PlaceInRows(int64_t dimension) const {
    return std::find(rows_.begin(), rows_.end(), dimension) - rows_.begin();
  }
  llvm::Value* SelectFactor(llvm::Value* inside, llvm::Value* value) const {
    return ir_.b.CreateSelect(inside, value, llvm::Constant::getNullValue(value->getType()));
  }

  Dims rows_, row_sizes_;  // The dimensions of the result except for features.
};

// Whether blocks are faster than sums of single elements.
bool PrefersConvolutionInBlocks(const KernelContext& kernel, const Instruction& conv) {
  return kernel.has_vectors() && IsWorthBlocks(conv);
}

// Computes the sums of several neighboring features at once, as vectors. Each feature is a group.
void EmitVectorsOfGroups(KernelContext& kernel, const Instruction& conv) {
  constexpr int64_t kFeaturesAtOnce = 64, kMaxLanes = 16;
  Ir& ir = kernel.ir();
  Elements& elements = kernel.elements();
  const hlo::ConvolutionDimensions& n = *conv.attributes().convolution;
  const ConvolutionIndices indices(&elements, conv);
  const ElementType type = conv.shape().type();
  const int64_t features = conv.shape().dims().back();
  Dims pieces = conv.shape().dims();
  pieces.back() = CeilDiv(features, kFeaturesAtOnce);
  // Pieces consist of whole vectors and, within this limit, have few features in common.
  const int64_t width = std::min(features, RoundUp(CeilDiv(features, pieces.back()), kMaxLanes));
  // If the features are not a multiple of the width, the last piece begins earlier and writes the same values again.
  // One tile then computes all pieces of a row, because two threads must not write the same element.
  const bool overlap = features % width != 0;
  kernel.Divide(overlap ? TileWholeRows(pieces, kernel.wanted_tiles()) : TileRows(pieces, kernel.wanted_tiles()));
  ForPositions(ir, kernel.range(), pieces, [&](const Index& position) {
    Values out = DimsOf(ir, position, pieces), spatial;
    llvm::Value* first = ir.Mul(out.back(), width);
    if (overlap) first = ir.Clamp(first, 0, features - width);
    for (const int64_t d : n.output_spatial) spatial.push_back(out[d]);
    Accumulators sums(&ir, {{type, {}}}, width);
    llvm::Value* zero = llvm::Constant::getNullValue(RegisterType(ir.context(), type));
    ir.Loop(width, [&](llvm::Value* lane) { sums.Store({zero}, lane); });
    ir.LoopNest(indices.depth_sizes(), [&](const Values& depth) {
      const WindowPosition at = indices.InBase(spatial, depth);
      ir.If(at.inside, [&] {
        ir.Loop(width, [&](llvm::Value* lane) {
          llvm::Value* group = ir.Add(first, lane);
          llvm::Value* x = EmitFactor(elements, conv, 0,
                                      indices.Input(group, out[n.output_batch], at.index, depth.back()));
          llvm::Value* y = EmitFactor(elements, conv, 1, indices.Kernel(group, depth));
          sums.Store({EmitSum(ir, type, sums.Load(lane)[0], EmitProduct(ir, type, x, y))}, lane);
        });
      });
    });
    ir.Loop(width, [&](llvm::Value* lane) {
      Values place = out;
      place.back() = ir.Add(first, lane);
      StoreTo(ir, kernel.outputs()[0].array, Index::Of(place), RoundTo(ir.b, type, sums.Load(lane)[0]));
    });
  });
}

}  // namespace

Values EmitConvolutionElement(Elements& elements, const Instruction& conv, const Index& index) {
  Ir& ir = elements.ir();
  const hlo::ConvolutionDimensions& n = *conv.attributes().convolution;
  const ElementType type = conv.shape().type();
  const ConvolutionIndices indices(&elements, conv);
  const Values out = DimsOf(ir, index, conv.shape().dims());
  llvm::Value* feature = out[n.output_feature];
  llvm::Value* group = indices.groups() == 1 ? ir.I64(0) : ir.Div(feature, indices.features());
  Values spatial;
  for (const int64_t d : n.output_spatial) spatial.push_back(out[d]);
  Accumulators sum(&ir, {{type, {}}});
  sum.Store({llvm::Constant::getNullValue(RegisterType(ir.context(), type))});
  ir.LoopNest(indices.depth_sizes(), [&](const Values& depth) {
    const WindowPosition position = indices.InBase(spatial, depth);
    ir.If(position.inside, [&] {
      llvm::Value* x = EmitFactor(elements, conv, 0,
                                  indices.Input(group, out[n.output_batch], position.index, depth.back()));
      llvm::Value* y = EmitFactor(elements, conv, 1, indices.Kernel(feature, depth));
      sum.Store({EmitSum(ir, type, sum.Load()[0], EmitProduct(ir, type, x, y))});
    });
  });
  return {RoundTo(ir.b, type, sum.Load()[0])};
}

void EmitConvolution(KernelContext& kernel, const Instruction& conv) {
  if (kernel.has_vectors() && HasVectorsOfGroups(conv)) return EmitVectorsOfGroups(kernel, conv);
  const ConvolutionMatrices matrices(&kernel.elements(), conv);
  if (!PrefersConvolutionInBlocks(kernel, conv)) return EmitLoops(kernel);
  BlockedProduct product(&kernel, conv, matrices.Sizes());
  product.ForBlocks({matrices.groups()}, [&](const Values& at, const LineRange& rows, const LineRange& columns) {
    product.Emit({matrices.Lhs(at[0]), matrices.Rhs(at[0]), rows, columns});
  });
}

}  // namespace xlad::compiler
