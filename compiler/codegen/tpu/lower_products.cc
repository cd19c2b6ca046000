// Products of matrices on the matrix units; dots and convolutions as products.
#include <algorithm>

#include "base/containers.h"
#include "base/rounding.h"
#include "base/status.h"
#include "compiler/analysis/library_op.h"
#include "compiler/codegen/tpu/element_code.h"
#include "compiler/codegen/tpu/lowering.h"
#include "compiler/codegen/tpu/packed_tiles.h"
#include "machine/llo/scoreboard.h"

namespace xlad::compiler {

using machine::kLanes;
using machine::kMatrixTiles;
using machine::kSublanes;
using machine::LloType;

namespace {

// The maximum numbers of rows and columns, and the maximum depth, of the blocks of a product.
constexpr int64_t kRowBlock = 512, kColumnBlock = 512, kDepthBlock = 256;
// The maximum number of elements of the windows of a convolution, and of its padded input, which are written to memory.
constexpr int64_t kMaxPatchElements = int64_t{1} << 28;

// Whether an array of these sizes, which are positive, has at most kMaxPatchElements elements.
bool IsSmallPatch(const Dims& sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (size > kMaxPatchElements / elements) return false;
    elements *= size;
  }
  return true;
}
Dims Without(int64_t ndim, const Dims& a, const Dims& b) {
  Dims out;
  for (int64_t d = 0; d < ndim; ++d) {
    const bool is_taken = Contains(a, d) || Contains(b, d);
    if (!is_taken) out.push_back(d);
  }
  return out;
}
Dims Joined(Dims a, const Dims& b, const Dims& c) {
  a.insert(a.end(), b.begin(), b.end());
  a.insert(a.end(), c.begin(), c.end());
  return a;
}

// A product of parts of the operands: part 0 is the operand rounded to bf16, part 1 the rest rounded to bf16, and so
// on. Passes with the same part of rhs are adjacent, so that this part is loaded into the matrix units once. Smaller
// parts come first.
struct Pass {
  int lhs, rhs;
};
std::vector<Pass> PassTable(int passes) {
  if (passes == 1) return {{0, 0}};
  if (passes == 3) return {{0, 1}, {1, 0}, {0, 0}};
  if (passes == 4) return {{1, 1}, {0, 1}, {1, 0}, {0, 0}};
  return {{0, 2}, {1, 1}, {0, 1}, {2, 0}, {1, 0}, {0, 0}};
}

// The types of the operands and the result of a product. Integer operands have 8 bits, so bf16 represents them exactly,
// and f32 represents the sum of 128 of their products exactly. Such sums are converted to s32 and added as s32.
struct ProductTypes {
  LloType operands, result;
  bool is_integer() const { return operands == LloType::kS8 || operands == LloType::kU8; }
};

// Writes the steps of a product: blocks of lhs [rows, depth] and rhs [depth, columns].
class ProductCode {
 public:
  ProductCode(LloBuilder* builder, const MatrixProductOf& product, const ProductTypes& types, int units)
      : builder_(*builder),
        passes_(PassTable(product.passes)),
        types_(types),
        packing_(machine::PackingOf(types.operands)) {
    row_block_ = std::min(RoundUp(product.m, kSublanes), kRowBlock);
    depth_block_ = std::min(RoundUp(product.k, kLanes), kDepthBlock);
    column_block_ = std::min(RoundUp(product.n, kLanes), kColumnBlock);
    while (StreamTiles() > builder_.stream_tiles() && ShrinkBlocks()) {
    }
    row_tiles_ = row_block_ / kSublanes;
    depth_tiles_ = depth_block_ / kLanes;
    column_tiles_ = column_block_ / kLanes;
    units_ = std::min<int64_t>(units, column_tiles_);
    while (column_tiles_ % units_ != 0) --units_;
    masked_depth_ = product.k % depth_block_ != 0;
    grid_ = {{product.batch, CeilDiv(product.m, row_block_), CeilDiv(product.n, column_block_),
              CeilDiv(product.k, depth_block_)},
             1};
    const BlockExtent rows{1, row_block_, product.m}, columns{2, column_block_, product.n};
    const BlockExtent depth{3, depth_block_, product.k};
    const int64_t mk = product.m * product.k, kn = product.k * product.n, mn = product.m * product.n;
    lhs_ = {product.lhs, {mk, row_block_ * product.k, 0, depth_block_}, 0, product.k, rows, depth, types_.operands};
    rhs_ = {product.rhs,    {kn, 0, column_block_, depth_block_ * product.n}, 0, product.n, depth, columns,
            types_.operands};
    result_ = {product.result, {mn, row_block_ * product.n, column_block_, 0}, 0, product.n, rows, columns,
               types_.result};
  }

  void Run() {
    TilePipeline pipeline(&builder_, grid_, {lhs_, rhs_}, {result_});
    sums_ = builder_.NewTiles(row_tiles_ * column_tiles_);
    pipeline.Run([&](const TileStep& step) { EmitStep(step); });
  }

 private:
  // What is known about the results of the previous pass.
  enum class Results {
    kNone,            // There was no previous pass.
    kOfSmallerParts,  // The operands of that pass were smaller parts than the first ones.
    kAny,             // Nothing is known.
  };

  // The tiles of the blocks of the two operands and the result, with the buffers of each.
  int64_t StreamTiles() const {
    const int64_t elements = row_block_ * depth_block_ + depth_block_ * column_block_ + row_block_ * column_block_;
    return kStreamBuffers * elements / (kSublanes * kLanes);
  }

  // Makes the blocks smaller. Returns false if they have the smallest size.
  bool ShrinkBlocks() {
    if (row_block_ > kLanes && row_block_ >= column_block_) {
      row_block_ = RoundUp(row_block_ / 2, kSublanes);
    } else if (column_block_ > kLanes) {
      column_block_ = RoundUp(column_block_ / 2, kLanes);
    } else if (depth_block_ > kLanes) {
      depth_block_ = RoundUp(depth_block_ / 2, kLanes);
    } else if (row_block_ > kSublanes) {
      row_block_ = RoundUp(row_block_ / 2, kSublanes);
    } else {
      return false;
    }
    return true;
  }

  // Writes the products of a block. For each group of columns and each 128 elements of the depth, the weights are
  // loaded, and all rows are pushed through the arrays. The results of a pass are popped from the queues while the rows
  // of the next pass are pushed.
  void EmitStep(const TileStep& step) {
    const ScalarScope scope(&builder_);
    step_ = &step;
    EmitClear(step);
    depth_ = masked_depth_ ? EmitDepth(step) : -1;
    const int64_t panels = column_tiles_ / units_ * depth_tiles_;
    panel_ = builder_.NewScalar();
    group_ = builder_.NewScalar();
    before_ = builder_.NewScalar();
    slice_ = builder_.NewScalar();
    const int counter = builder_.NewScalar();
    builder_.Scalar(LloOp::kSMov, panel_, 0, 0);
    EmitPanel(true);
    if (panels > 1) {
      builder_.BeginLoop(counter, panels - 1);
      builder_.Scalar(LloOp::kSAddI, panel_, counter, 1);
      EmitPanel(false);
      builder_.EndLoop();
    }
    EmitRows(-1, Results::kAny);
    EmitCopyOut(step);
  }

  // Writes the products of a panel: one group of columns and one slice of 128 elements of the depth. The register
  // panel_ has the number group * depth_tiles_ + slice.
  void EmitPanel(bool is_first) {
    builder_.Scalar(LloOp::kSDivI, group_, panel_, depth_tiles_);
    builder_.Scalar(LloOp::kSRemI, slice_, panel_, depth_tiles_);
    int loaded = -1;
    for (size_t p = 0; p < passes_.size(); ++p) {
      if (passes_[p].rhs != loaded) EmitWeights(passes_[p].rhs);
      loaded = passes_[p].rhs;
      // Products of f32 do not replace NaN (FiniteOrZero), so that they cost no more than their passes.
      const bool after_smaller = p > 0 && types_.operands == LloType::kF16;
      EmitRows(passes_[p].lhs, is_first && p == 0 ? Results::kNone
                               : after_smaller    ? Results::kOfSmallerParts
                                                  : Results::kAny);
      builder_.Scalar(LloOp::kSDivI, before_, panel_, depth_tiles_);
    }
  }

  // The rows of an operand, whose tile is `packed`, as numbers of f32.
  int OperandOf(int packed, int part) {
    const int value = Unpack(&builder_, types_.operands, packed, part);
    return types_.is_integer() ? builder_.Vector(LloOp::kIToF, {value}) : value;
  }

  // A part of a value, as in PassTable.
  int PartOf(int value, int part) {
    for (int i = 0; i < part; ++i) {
      const int rounded = builder_.Vector(LloOp::kFRoundBf16, {value});
      value = builder_.Vector(LloOp::kFSub, {value, rounded});
    }
    return value;
  }

  void EmitWeights(int part) {
    const ScalarScope scope(&builder_);
    const int first = builder_.NewScalar(), columns = builder_.NewScalar();
    // Tile r of the weights of unit u is tile (16 slice + r, units group + u) of the block if elements are not packed.
    std::vector<int> parts;
    for (int p = 0; p < packing_; ++p) parts.push_back(PartRegister(&builder_, p));
    builder_.Scalar(LloOp::kSMulI, first, slice_, kMatrixTiles / packing_ * column_tiles_);
    builder_.Scalar(LloOp::kSMulI, columns, group_, units_);
    builder_.ScalarSum(first, first, columns);
    builder_.ScalarSum(first, first, step_->inputs[1]);
    for (int r = 0; r < kMatrixTiles; ++r) {
      const int inside = depth_ < 0 ? -1 : EmitInside(r);
      for (int u = 0; u < units_; ++u) {
        int value = OperandOf(builder_.Load(first, r / packing_ * column_tiles_ + u, 1), parts[r % packing_]);
        if (inside >= 0) value = builder_.Vector(LloOp::kVSelect, {inside, value, builder_.Constant(0)});
        builder_.Push(LloOp::kMLoad, {PartOf(value, part)}, u);
      }
    }
    for (int u = 0; u < units_; ++u) builder_.Push(LloOp::kMSwap, {}, u);
  }

  // A vector with 1 in the rows of tile r that are inside the weights. The other rows of the tile have not been written
  // to VMEM.
  int EmitInside(int r) {
    const ScalarScope scope(&builder_);
    const int first = builder_.NewScalar();
    builder_.Scalar(LloOp::kSMulI, first, slice_, kLanes);
    builder_.Scalar(LloOp::kSAddI, first, first, int64_t{r} * kSublanes);
    const int index =
        builder_.Vector(LloOp::kIAdd, {builder_.Vector(LloOp::kVSublane, {}), builder_.Vector(LloOp::kVMovS, {first})});
    return builder_.Vector(LloOp::kILt, {index, builder_.Vector(LloOp::kVMovS, {depth_})});
  }

  int EmitDepth(const TileStep& step) {
    const int left = step.Index(3);
    builder_.Scalar(LloOp::kSMulI, left, left, lhs_.columns.block);
    builder_.Scalar(LloOp::kSRSubI, left, left, lhs_.columns.total);
    builder_.Scalar(LloOp::kSMinI, left, left, lhs_.columns.block);
    return left;
  }

  // An infinite operand has parts inf and inf - inf = NaN, and the product of inf and a part that is 0 is NaN, too. The
  // last pass alone has the right result in this case.
  int FiniteOrZero(int value) {
    const int zero = builder_.Constant(0), difference = builder_.Vector(LloOp::kFSub, {value, value});
    return builder_.Vector(LloOp::kVSelect, {builder_.Vector(LloOp::kFEq, {difference, zero}), value, zero});
  }

  // Pushes all rows of the block into the arrays if part >= 0, and adds the results of the previous pass to the sums.
  void EmitRows(int part, Results results) {
    const ScalarScope scope(&builder_);
    const int row = builder_.NewScalar(), from = builder_.NewScalar(), to = builder_.NewScalar();
    builder_.BeginLoop(row, row_tiles_);
    const RowPosition lhs_at = PositionOfRows(&builder_, types_.operands, row);
    builder_.Scalar(LloOp::kSMulI, from, lhs_at.tile_row, depth_tiles_);
    builder_.ScalarSum(from, from, slice_);
    builder_.ScalarSum(from, from, step_->inputs[0]);
    builder_.Scalar(LloOp::kSMulI, to, before_, units_);
    const int line = builder_.NewScalar();
    builder_.Scalar(LloOp::kSMulI, line, row, column_tiles_);
    builder_.ScalarSum(to, to, line);
    if (results != Results::kNone) {
      for (int u = 0; u < units_; ++u) {
        int value = builder_.Vector(LloOp::kMPop, {}, u);
        if (types_.is_integer()) value = builder_.Vector(LloOp::kFToI, {value});
        if (results == Results::kOfSmallerParts) value = FiniteOrZero(value);
        const int sum = builder_.Load(to, sums_ + u, 200);
        const LloOp add = types_.is_integer() ? LloOp::kIAdd : LloOp::kFAdd;
        builder_.Store(to, sums_ + u, builder_.Vector(add, {sum, value}), 200);
      }
    }
    if (part >= 0) {
      const int value = PartOf(OperandOf(builder_.Load(from, 0, 0), lhs_at.part), part);
      for (int u = 0; u < units_; ++u) builder_.Push(LloOp::kMPush, {value}, u);
    }
    builder_.EndLoop();
  }

  // Sets the sums to 0 before the first block along the depth.
  void EmitClear(const TileStep& step) {
    const ScalarScope scope(&builder_);
    const int is_first = step.IsFirst(), tile = builder_.NewScalar();
    builder_.BeginLoop(tile, row_tiles_ * column_tiles_);
    const int mask = builder_.Vector(LloOp::kVMovS, {is_first});
    const int sum = builder_.Load(tile, sums_, 200);
    builder_.Store(tile, sums_, builder_.Vector(LloOp::kVSelect, {mask, builder_.Constant(0), sum}), 200);
    builder_.EndLoop();
  }

  void EmitCopyOut(const TileStep& step) {
    const ScalarScope scope(&builder_);
    const int tile = builder_.NewScalar(), to = builder_.NewScalar();
    builder_.BeginLoop(tile, row_tiles_ * column_tiles_);
    int part = LloBuilder::zero();
    if (machine::PackingOf(types_.result) == 1) {
      builder_.ScalarSum(to, tile, step.outputs[0]);
    } else {
      const int row = builder_.NewScalar(), column = builder_.NewScalar();
      builder_.Scalar(LloOp::kSDivI, row, tile, column_tiles_);
      builder_.Scalar(LloOp::kSRemI, column, tile, column_tiles_);
      const RowPosition at = PositionOfRows(&builder_, types_.result, row);
      part = at.part;
      builder_.Scalar(LloOp::kSMulI, to, at.tile_row, column_tiles_);
      builder_.ScalarSum(to, to, column);
      builder_.ScalarSum(to, to, step.outputs[0]);
    }
    StoreRows(&builder_, types_.result, {to, 0, part, 100}, builder_.Load(tile, sums_, 200));
    builder_.EndLoop();
  }

  LloBuilder& builder_;
  const std::vector<Pass> passes_;
  const ProductTypes types_;
  const int packing_;  // The packing of the operands.
  int64_t row_block_, column_block_, depth_block_, row_tiles_, column_tiles_, depth_tiles_, units_;
  bool masked_depth_ = false;
  TileGrid grid_;
  TileStream lhs_, rhs_, result_;
  int64_t sums_ = 0;  // The first tile of the sums.
  // Scalar registers of a step.
  const TileStep* step_ = nullptr;
  int depth_ = -1;  // The depth of the block, or -1 if all blocks are complete.
  int panel_ = 0, group_ = 0, slice_ = 0;
  int before_ = 0;  // The group of the pass whose results are popped.
};

bool HasProductTypes(const Instruction& i) {
  const ElementType lhs = i.operand(0)->shape().type(), result = i.shape().type();
  if (i.operand(1)->shape().type() != lhs) return false;
  const auto is_float = [](ElementType type) { return tensor::IsFloating(type) && LloTypeOf(type) != LloType::kOther; };
  if (is_float(lhs)) return is_float(result);
  if (lhs != ElementType::kS8 && lhs != ElementType::kU8) return false;
  return !tensor::IsFloating(result) && result != ElementType::kPred && LloTypeOf(result) != LloType::kOther;
}

}  // namespace

int PassesOf(const Instruction& product) {
  const ElementType type = product.operand(0)->shape().type();
  // An f16 is the sum of two numbers of bf16, so four passes add exact products.
  if (type == ElementType::kF16) return 4;
  return type == ElementType::kF32 ? Bf16Passes(PrecisionOf(product)) : 1;
}

void LloLowering::EmitProduct(const MatrixProductOf& product) {
  LloBuilder builder = NewBuilder();
  ProductCode(&builder, product, {TypeOf(product.lhs), TypeOf(product.result)}, machine::MatrixUnitsOf(chip_)).Run();
  AddKernel(&builder, {product.lhs, product.rhs}, {product.result});
}

bool LloLowering::LowerDot(const Instruction& dot, int out) {
  if (dot.operand_count() != 2 || !HasProductTypes(dot)) return false;
  const hlo::DotDimensions& numbers = *dot.attributes().dot;
  const Dims &lhs = dot.operand(0)->shape().dims(), &rhs = dot.operand(1)->shape().dims();
  const Dims lhs_free = Without(std::ssize(lhs), numbers.lhs_batch, numbers.lhs_contracting);
  const Dims rhs_free = Without(std::ssize(rhs), numbers.rhs_batch, numbers.rhs_contracting);
  MatrixProductOf product;
  product.batch = tensor::Product(tensor::Select(lhs, numbers.lhs_batch));
  product.m = tensor::Product(tensor::Select(lhs, lhs_free));
  product.n = tensor::Product(tensor::Select(rhs, rhs_free));
  product.k = tensor::Product(tensor::Select(lhs, numbers.lhs_contracting));
  product.lhs =
      Permuted(Materialize(dot.operand(0)), lhs, Joined(numbers.lhs_batch, lhs_free, numbers.lhs_contracting));
  product.rhs =
      Permuted(Materialize(dot.operand(1)), rhs, Joined(numbers.rhs_batch, numbers.rhs_contracting, rhs_free));
  product.result = out;
  product.passes = PassesOf(dot);
  EmitProduct(product);
  return true;
}

bool LloLowering::LowerConvolution(const Instruction& conv, int out) {
  const hlo::Attributes& attributes = conv.attributes();
  const hlo::ConvolutionDimensions& numbers = *attributes.convolution;
  const hlo::Window& window = *attributes.window;
  if (!HasProductTypes(conv) || attributes.feature_group_count != 1 || attributes.batch_group_count != 1) return false;
  const size_t spatial = window.size();
  for (const hlo::WindowDimension& w : window) {
    if (w.base_dilation != 1 || w.window_reversal || w.padding_low < 0 || w.padding_high < 0) return false;
    if (std::max(w.padding_low, w.padding_high) > kMaxPatchElements) return false;
  }
  const Dims input_order = Joined({numbers.input_batch}, numbers.input_spatial, {numbers.input_feature});
  const Dims kernel_order =
      Joined(numbers.kernel_spatial, {numbers.kernel_input_feature}, {numbers.kernel_output_feature});
  const Dims output_order = Joined({numbers.output_batch}, numbers.output_spatial, {numbers.output_feature});
  const Dims input = tensor::Select(conv.operand(0)->shape().dims(), input_order);
  const Dims kernel = tensor::Select(conv.operand(1)->shape().dims(), kernel_order);
  const Dims output = tensor::Select(conv.shape().dims(), output_order);
  const Dims positions(output.begin(), output.end() - 1), window_sizes(kernel.begin(), kernel.begin() + spatial);
  Dims padded = input;
  for (size_t d = 0; d < spatial; ++d) padded[d + 1] += window[d].padding_low + window[d].padding_high;
  if (!IsSmallPatch(Joined(positions, window_sizes, {input.back()})) || !IsSmallPatch(padded)) return false;
  const int64_t taps = tensor::Product(window_sizes), features = input.back(), rows = tensor::Product(positions);

  // Writes the input with its padding.
  const LloType type = LloTypeOf(conv.operand(0)->shape().type());
  int from = Permuted(Materialize(conv.operand(0)), conv.operand(0)->shape().dims(), input_order);
  Move pad{from, 0, input, tensor::Strides(input)};
  const Dims strides = tensor::Strides(padded);
  if (padded != input) {
    from = NewBuffer(conv.name() + ".padded", type, tensor::Product(padded));
    EmitFill(NewBuffer(conv.name() + ".zero", type, 1), from);
    pad.to = from;
    pad.to_strides = strides;
    for (size_t d = 0; d < spatial; ++d) pad.to_base += window[d].padding_low * strides[d + 1];
    EmitMove(pad);
  }

  // Writes a row for each output position: the features of all taps of its window.
  MatrixProductOf product{1, rows, taps * features, output.back()};
  product.lhs = NewBuffer(conv.name() + ".windows", type, rows * taps * features);
  for (int64_t tap = 0; tap < taps; ++tap) {
    Move move{from, product.lhs, output, strides, {}};
    move.sizes.back() = features;
    Dims output_rows = output;
    output_rows.back() = taps * features;
    move.to_strides = tensor::Strides(output_rows);
    move.to_base = tap * features;
    int64_t left = tap;
    for (int64_t d = static_cast<int64_t>(spatial) - 1; d >= 0; --d) {
      move.from_base += left % kernel[d] * window[d].window_dilation * strides[d + 1];
      if (output[d + 1] > 1) move.from_strides[d + 1] *= window[d].stride;
      left /= kernel[d];
    }
    EmitMove(move);
  }
  product.rhs = Permuted(Materialize(conv.operand(1)), conv.operand(1)->shape().dims(), kernel_order);
  const Dims back = tensor::Inverse(output_order);
  const bool is_ordered = std::is_sorted(back.begin(), back.end());
  product.result =
      is_ordered ? out : NewBuffer(conv.name() + ".rows", LloTypeOf(conv.shape().type()), rows * product.n);
  product.passes = PassesOf(conv);
  EmitProduct(product);
  if (!is_ordered) EmitPermute(product.result, output, back, out);
  return true;
}

}  // namespace xlad::compiler
