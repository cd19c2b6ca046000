// Elementwise instructions, and reductions of their results: expressions on tiles.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "base/rounding.h"
#include "base/status.h"
#include "compiler/codegen/tpu/element_code.h"
#include "compiler/codegen/tpu/lowering.h"
#include "compiler/codegen/tpu/packed_tiles.h"

namespace xlad::compiler {

using machine::kLanes;
using machine::kSublanes;
using machine::LloType;

namespace {

constexpr int64_t kMaxBlockTiles = 64;
// Each stream needs two scalar registers. Packed streams need two more for the parts of tiles.
constexpr size_t kMaxStreams = 7, kMaxPackedStreams = 5;
constexpr size_t kMaxExpression = 96;  // The maximum number of instructions of an expression.

// How the elements of a stream are distributed over the tiles of a domain: one for each element, column or row of the
// domain, or one for all.
enum class Spread { kBlock, kRow, kColumn, kScalar };

}  // namespace

// The indices over which an expression is computed, as rows and columns, and the grid of blocks that covers them.
struct TileDomain {
  TileGrid grid;
  // For each axis of the grid, the distance between the first rows, or first columns, of neighboring blocks.
  Dims row_steps, column_steps;
  BlockExtent rows, columns;
  int64_t width = 1;  // The number of columns of the domain.
};

// Instructions that are computed together on one tile. Their leaves are streams, constants and iotas.
class TileExpression {
 public:
  TileExpression(LloLowering* lowering, const Instruction* root, bool with_producers)
      : lowering_(*lowering), root_(root), dims_(root->shape().dims()), with_producers_(with_producers) {}

  // Lowers the instructions that the expression reads. Returns false if the expression has more than kMaxStreams
  // streams (kMaxPackedStreams if one is packed) or kMaxExpression instructions.
  bool Build() {
    Visit(root_, true);
    return streams_.size() <= (is_packed() ? kMaxPackedStreams : kMaxStreams) && order_.size() <= kMaxExpression;
  }

  // Whether a tile may be any part of the array, because no leaf depends on rows and columns.
  bool IsFlat() const {
    for (const Leaf& leaf : streams_) {
      if (leaf.spread == Spread::kRow || leaf.spread == Spread::kColumn) return false;
    }
    return iotas_.empty();
  }

  // Whether the result or a stream is packed.
  bool is_packed() const {
    const auto is = [](LloType type) { return machine::PackingOf(type) > 1; };
    return is(LloTypeOf(root_->shape().type())) ||
           std::any_of(streams_.begin(), streams_.end(), [&](const Leaf& leaf) { return is(TypeOf(leaf)); });
  }

  int64_t stream_count() const { return std::ssize(streams_); }
  std::vector<int> buffers() const {
    std::vector<int> buffers;
    for (const Leaf& leaf : streams_) buffers.push_back(leaf.buffer);
    return buffers;
  }

  std::vector<TileStream> StreamsOn(const TileDomain& domain) const {
    std::vector<TileStream> streams;
    for (const Leaf& leaf : streams_) {
      TileStream& stream = streams.emplace_back();
      stream.buffer = leaf.buffer;
      stream.type = TypeOf(leaf);
      stream.steps.assign(domain.grid.counts.size(), 0);
      for (size_t axis = 0; axis < stream.steps.size(); ++axis) {
        const int64_t rows = domain.row_steps[axis], columns = domain.column_steps[axis];
        if (leaf.spread == Spread::kBlock) stream.steps[axis] = rows * domain.width + columns;
        if (leaf.spread == Spread::kRow) stream.steps[axis] = columns;
        if (leaf.spread == Spread::kColumn) stream.steps[axis] = rows;
      }
      if (leaf.spread == Spread::kBlock) stream.row_stride = domain.width;
      if (leaf.spread == Spread::kBlock || leaf.spread == Spread::kColumn) stream.rows = domain.rows;
      if (leaf.spread == Spread::kBlock || leaf.spread == Spread::kRow) stream.columns = domain.columns;
    }
    return streams;
  }

  // The position of a tile. Scalar registers hold its row and column of tiles in the block (tile_row, tile_column), and
  // the first row and column of the block in the domain (row, column).
  struct Position {
    const TileStep* step = nullptr;
    int tile_row = 0, tile_column = 0;
    int64_t column_offset = 0, row_offset = 0;  // Added to tile_column and tile_row.
    int row = 0, column = 0;
    int64_t tile_columns = 1;  // The number of tiles in a row of tiles of the block.
    // For each stream, the scalar registers with the number of its tile, without the offsets, and with the part of the
    // tile if it is packed.
    std::vector<int> addresses, parts;
  };

  // Sets the addresses and parts of a position.
  void EmitAddresses(LloBuilder* builder, Position* position) const {
    const Position& at = *position;
    int tile = -1;  // The register with the number of the tile in the block.
    std::vector<int> addresses;
    std::map<int, int> parts;  // The registers of the parts, by packing.
    position->parts.clear();
    for (size_t s = 0; s < streams_.size(); ++s) {
      const Spread spread = streams_[s].spread;
      const int packing = machine::PackingOf(TypeOf(streams_[s]));
      if (packing > 1 && (spread == Spread::kBlock || spread == Spread::kColumn)) {
        if (!parts.contains(packing)) {
          parts[packing] = builder->NewScalar();
          builder->Scalar(LloOp::kSAndI, parts[packing], at.tile_row, packing - 1);
        }
        position->parts.push_back(parts[packing]);
        const int address = addresses.emplace_back(builder->NewScalar());
        builder->Scalar(LloOp::kSDivI, address, at.tile_row, packing);
        if (spread == Spread::kBlock) {
          builder->Scalar(LloOp::kSMulI, address, address, at.tile_columns);
          builder->ScalarSum(address, address, at.tile_column);
        }
        builder->ScalarSum(address, address, at.step->inputs[s]);
        continue;
      }
      position->parts.push_back(LloBuilder::zero());  // Rows and scalars are in the first part.
      if (spread == Spread::kBlock && tile < 0) {
        tile = builder->NewScalar();
        builder->Scalar(LloOp::kSMulI, tile, at.tile_row, at.tile_columns);
        builder->ScalarSum(tile, tile, at.tile_column);
      }
      if (spread == Spread::kScalar) {
        addresses.push_back(at.step->inputs[s]);
        continue;
      }
      const int inside = spread == Spread::kBlock ? tile : spread == Spread::kRow ? at.tile_column : at.tile_row;
      addresses.push_back(builder->NewScalar());
      builder->ScalarSum(addresses.back(), at.step->inputs[s], inside);
    }
    position->addresses = std::move(addresses);
  }

  // Writes the code for a tile, and returns the vector value of the result.
  int Emit(LloBuilder* builder, const Position& at) const {
    absl::flat_hash_map<const Instruction*, int> values;
    for (size_t s = 0; s < streams_.size(); ++s) values[streams_[s].instruction] = LoadLeaf(builder, s, at);
    for (const Instruction* iota : iotas_) values[iota] = EmitIota(*iota, builder, at);
    for (const auto& [constant, word] : constants_) values[constant] = builder->Constant(word);
    for (const Instruction* instruction : order_) {
      std::vector<int> operands;
      for (const Instruction* operand : instruction->operands()) operands.push_back(values.at(operand));
      values[instruction] = EmitElement(*instruction, operands, builder);
    }
    return values.at(root_);
  }

  bool has_iotas() const { return !iotas_.empty(); }

 private:
  struct Leaf {
    const Instruction* instruction;
    int buffer;
    Spread spread;
  };

  LloType TypeOf(const Leaf& leaf) const { return lowering_.TypeOf(leaf.buffer); }

  void Visit(const Instruction* instruction, bool is_root) {
    if (!visited_.insert(instruction).second) return;
    if (AddConstant(instruction, instruction)) return;
    const bool is_known = lowering_.leaves_.contains(instruction);
    const bool is_whole = instruction->shape().dims() == dims_;
    if (is_whole && !is_known && (is_root || with_producers_) && HasElementCode(*instruction)) {
      for (const Instruction* operand : instruction->operands()) Visit(operand, false);
      order_.push_back(instruction);
      return;
    }
    if (is_whole && !is_known && instruction->opcode() == Opcode::kIota &&
        LloTypeOf(instruction->shape().type()) != LloType::kOther) {
      iotas_.push_back(instruction);
      return;
    }
    if (is_whole && !is_known && instruction->opcode() == Opcode::kBroadcast && AddBroadcast(instruction)) return;
    if (is_whole) {
      const Instruction* source = is_root && instruction->opcode() == Opcode::kCopy ? instruction->operand(0) : nullptr;
      const int buffer = lowering_.Materialize(source != nullptr ? source : instruction);
      streams_.push_back({instruction, buffer, Spread::kBlock});
      return;
    }
    streams_.push_back({instruction, lowering_.Materialize(instruction), Spread::kScalar});
  }

  bool AddConstant(const Instruction* constant, const Instruction* as) {
    const bool is_scalar = constant->opcode() == Opcode::kConstant && constant->shape().is_array() &&
                           constant->shape().elements() == 1 && LloTypeOf(constant->shape().type()) != LloType::kOther;
    if (is_scalar) constants_.emplace_back(as, WordOf(*constant));
    return is_scalar;
  }

  bool AddBroadcast(const Instruction* broadcast) {
    const Instruction* operand = broadcast->operand(0);
    if (AddConstant(operand, broadcast)) return true;
    const std::optional<Spread> spread = SpreadOf(*broadcast);
    if (!spread.has_value()) return false;
    streams_.push_back({broadcast, lowering_.Materialize(operand), *spread});
    return true;
  }

  // How the operand is distributed over rows and columns. Nullopt if no Spread describes this.
  static std::optional<Spread> SpreadOf(const Instruction& broadcast) {
    const Shape &operand = broadcast.operand(0)->shape(), &shape = broadcast.shape();
    if (operand.elements() == 1) return Spread::kScalar;
    if (!std::is_sorted(broadcast.dimensions().begin(), broadcast.dimensions().end())) return std::nullopt;
    const int64_t last = shape.ndim() - 1, width = shape.dim(last);
    if (operand.elements() == shape.elements()) return Spread::kBlock;
    const bool has_last = broadcast.dimensions().back() == last;
    if (operand.elements() == width && has_last && operand.dims().back() == width) return Spread::kRow;
    const bool lacks_last = !has_last || operand.dims().back() == 1;
    if (lacks_last && operand.elements() == shape.elements() / width) return Spread::kColumn;
    return std::nullopt;
  }

  // Loads the tile of a leaf at a position.
  int LoadLeaf(LloBuilder* builder, size_t s, const Position& at) const {
    const Spread spread = streams_[s].spread;
    const int64_t offset = spread == Spread::kBlock    ? at.row_offset * at.tile_columns + at.column_offset
                           : spread == Spread::kRow    ? at.column_offset
                           : spread == Spread::kColumn ? at.row_offset
                                                       : 0;
    int value = builder->Load(at.addresses[s], offset, static_cast<int>(s));
    value = Unpack(builder, TypeOf(streams_[s]), value, at.parts[s]);
    if (spread == Spread::kRow || spread == Spread::kScalar) value = builder->Vector(LloOp::kVBcastSub, {value});
    if (spread == Spread::kColumn || spread == Spread::kScalar) value = builder->Vector(LloOp::kVBcastLane, {value});
    return value;
  }

  // The rows or columns of a tile's elements in the domain.
  static int EmitIndices(LloBuilder* builder, const Position& at, bool of_rows) {
    const ScalarScope scope(builder);
    const int first = builder->NewScalar();
    builder->Scalar(LloOp::kSMulI, first, of_rows ? at.tile_row : at.tile_column, of_rows ? kSublanes : kLanes);
    builder->Scalar(LloOp::kSAddI, first, first, of_rows ? at.row_offset * kSublanes : at.column_offset * kLanes);
    builder->ScalarSum(first, first, of_rows ? at.row : at.column);
    const int inside = builder->Vector(of_rows ? LloOp::kVSublane : LloOp::kVLane, {});
    return builder->Vector(LloOp::kIAdd, {inside, builder->Vector(LloOp::kVMovS, {first})});
  }

  static int EmitIota(const Instruction& iota, LloBuilder* builder, const Position& at) {
    const Dims& dims = iota.shape().dims();
    const int64_t along = iota.dimensions()[0], last = std::ssize(dims) - 1;
    int index = EmitIndices(builder, at, along != last);
    int64_t inner = 1;
    for (int64_t d = along + 1; d < last; ++d) inner *= dims[d];
    if (along != last && inner > 1) {
      index = builder->Vector(LloOp::kIDiv, {index, builder->Constant(static_cast<uint32_t>(inner))});
    }
    if (along != last && along > 0) {
      index = builder->Vector(LloOp::kIRem, {index, builder->Constant(static_cast<uint32_t>(dims[along]))});
    }
    const ElementType type = iota.shape().type();
    return EmitNarrowed(type, tensor::IsFloating(type) ? builder->Vector(LloOp::kIToF, {index}) : index, builder);
  }

  LloLowering& lowering_;
  const Instruction* const root_;
  const Dims dims_;
  const bool with_producers_;
  std::set<const Instruction*> visited_;
  std::vector<const Instruction*> order_, iotas_;
  std::vector<Leaf> streams_;
  std::vector<std::pair<const Instruction*, uint32_t>> constants_;
};

namespace {

// Blocks of rows x columns, each of at most `block_tiles` tiles, that cover an array of `rows` x `width`.
TileDomain MapDomain(int64_t rows, int64_t width, int64_t block_tiles) {
  TileDomain domain;
  domain.width = width;
  const int64_t tile_columns = std::min<int64_t>({CeilDiv(width, kLanes), 16, block_tiles});
  const int64_t tile_rows = std::clamp<int64_t>(block_tiles / tile_columns, 1, CeilDiv(rows, kSublanes));
  const int64_t row_block = tile_rows * kSublanes, column_block = tile_columns * kLanes;
  domain.grid.counts = {CeilDiv(rows, row_block), CeilDiv(width, column_block)};
  domain.row_steps = {row_block, 0};
  domain.column_steps = {0, column_block};
  domain.rows = {0, row_block, rows};
  domain.columns = {1, column_block, width};
  return domain;
}

// The domain of an operand [a, b, width] that is reduced over b. The axes of the grid are a, blocks of columns, and
// blocks of b.
TileDomain ReduceRowsDomain(int64_t a, int64_t b, int64_t width, int64_t block_tiles) {
  TileDomain domain = MapDomain(b, width, block_tiles);
  const int64_t row_block = domain.rows.block, column_block = domain.columns.block;
  domain.grid.counts = {a, CeilDiv(width, column_block), CeilDiv(b, row_block)};
  domain.grid.inner = 1;
  domain.row_steps = {b, 0, row_block};
  domain.column_steps = {0, column_block, 0};
  domain.rows = {2, row_block, b};
  domain.columns = {1, column_block, width};
  return domain;
}

// The first row or column of a step's block, in a new register.
int EmitFirst(LloBuilder* builder, const TileDomain& domain, const TileStep& step, const Dims& steps) {
  const int first = builder->NewScalar();
  builder->Scalar(LloOp::kSMov, first, 0, 0);
  for (int axis = 0; axis < std::ssize(steps); ++axis) {
    if (steps[axis] == 0 || domain.grid.counts[axis] == 1) continue;
    const ScalarScope scope(builder);
    const int index = step.Index(axis);
    builder->Scalar(LloOp::kSMulI, index, index, steps[axis]);
    builder->ScalarSum(first, first, index);
  }
  return first;
}

int64_t UnrollOf(int64_t trips) { return trips % 4 == 0 ? 4 : trips % 2 == 0 ? 2 : 1; }

// The largest multiple of kLanes that divides `elements` and is at most 16 * kLanes, or 0 if there is none. A flat
// array is then lowered as rows of this width.
int64_t FlatWidth(int64_t elements) {
  for (int64_t width = 16 * kLanes; width >= kLanes; width -= kLanes) {
    if (elements % width == 0) return width;
  }
  return 0;
}

}  // namespace

void LloLowering::LowerMap(const Instruction& root, int out) {
  std::optional<TileExpression> expression(std::in_place, this, &root, true);
  if (!expression->Build()) {
    expression.emplace(this, &root, false);
    XLAD_CHECK(expression->Build());
  }
  const Dims& dims = root.shape().dims();
  int64_t width = dims.empty() ? 1 : dims.back(), rows = root.shape().elements() / width;
  if (expression->IsFlat()) {
    const int64_t flat = FlatWidth(root.shape().elements());
    width = flat > 0 ? flat : rows == 1 || width >= kLanes ? width : root.shape().elements();
    rows = root.shape().elements() / width;
  }
  const TileDomain domain = MapDomain(rows, width, BlockTiles(kMaxBlockTiles, expression->stream_count() + 1));
  TileStream output{out, domain.row_steps, 0, width, domain.rows, domain.columns, TypeOf(out)};
  for (size_t axis = 0; axis < output.steps.size(); ++axis) {
    output.steps[axis] = domain.row_steps[axis] * width + domain.column_steps[axis];
  }
  LloBuilder builder = NewBuilder();
  TilePipeline pipeline(&builder, domain.grid, expression->StreamsOn(domain), {output});
  pipeline.Run([&](const TileStep& step) {
    const ScalarScope scope(&builder);
    TileExpression::Position at;
    at.step = &step;
    at.tile_columns = output.tile_columns();
    at.row = expression->has_iotas() ? EmitFirst(&builder, domain, step, domain.row_steps) : LloBuilder::zero();
    at.column = expression->has_iotas() ? EmitFirst(&builder, domain, step, domain.column_steps) : LloBuilder::zero();
    at.tile_row = builder.NewScalar();
    const int64_t unroll = UnrollOf(at.tile_columns);
    const int part = builder.NewScalar();
    at.tile_column = builder.NewScalar();
    builder.BeginLoop(at.tile_row, output.tile_rows());
    builder.BeginLoop(part, at.tile_columns / unroll);
    builder.Scalar(LloOp::kSMulI, at.tile_column, part, unroll);
    expression->EmitAddresses(&builder, &at);
    const int tile = builder.NewScalar();
    const RowPosition rows_at = PositionOfRows(&builder, output.type, at.tile_row);
    builder.Scalar(LloOp::kSMulI, tile, rows_at.tile_row, at.tile_columns);
    builder.ScalarSum(tile, tile, at.tile_column);
    builder.ScalarSum(tile, tile, step.outputs[0]);
    for (at.column_offset = 0; at.column_offset < unroll; ++at.column_offset) {
      StoreRows(&builder, output.type, {tile, at.column_offset, rows_at.part, 100}, expression->Emit(&builder, at));
    }
    builder.EndLoop();
    builder.EndLoop();
  });
  AddKernel(&builder, expression->buffers(), {out});
}

namespace {

// A reduction of an expression: over the columns of its domain, or over the rows.
struct ReduceCode {
  LloBuilder* builder;
  const TileExpression* expression;
  const TileDomain* domain;
  LloReducer reducer;
  bool over_columns;
  int64_t tile_rows, tile_columns;
  int64_t sums;  // The first tile of the partial results in VMEM.
  LloType initial_type, result_type;
};

// A vector with 1 in the elements whose row or column in the block is less than the extent of the step, and 0 in the
// others.
int EmitInside(const ReduceCode& code, const TileExpression::Position& at, int extent) {
  LloBuilder& builder = *code.builder;
  const ScalarScope scope(&builder);
  const int first = builder.NewScalar();
  builder.Scalar(LloOp::kSMulI, first, code.over_columns ? at.tile_column : at.tile_row,
                 code.over_columns ? kLanes : kSublanes);
  builder.Scalar(LloOp::kSAddI, first, first,
                 code.over_columns ? at.column_offset * kLanes : at.row_offset * kSublanes);
  const int inside = builder.Vector(code.over_columns ? LloOp::kVLane : LloOp::kVSublane, {});
  const int index = builder.Vector(LloOp::kIAdd, {inside, builder.Vector(LloOp::kVMovS, {first})});
  return builder.Vector(LloOp::kILt, {index, builder.Vector(LloOp::kVMovS, {extent})});
}

// The number of rows or columns of the step's block that are in the domain.
int EmitExtent(const ReduceCode& code, const TileStep& step) {
  const BlockExtent& extent = code.over_columns ? code.domain->columns : code.domain->rows;
  const int left = step.Index(extent.axis);
  code.builder->Scalar(LloOp::kSMulI, left, left, extent.block);
  code.builder->Scalar(LloOp::kSRSubI, left, left, extent.total);
  code.builder->Scalar(LloOp::kSMinI, left, left, extent.block);
  return left;
}

// Combines the block of a step with the partial results.
void EmitSums(const ReduceCode& code, const TileStep& step) {
  LloBuilder& builder = *code.builder;
  const ScalarScope scope(&builder);
  const BlockExtent& reduced = code.over_columns ? code.domain->columns : code.domain->rows;
  const int extent = reduced.total % reduced.block == 0 ? -1 : EmitExtent(code, step);
  const int is_first = step.IsFirst();
  TileExpression::Position at;
  at.step = &step;
  at.tile_columns = code.tile_columns;
  at.row = EmitFirst(&builder, *code.domain, step, code.domain->row_steps);
  at.column = EmitFirst(&builder, *code.domain, step, code.domain->column_steps);
  const int kept = builder.NewScalar(), part = builder.NewScalar(), moving = builder.NewScalar();
  const int64_t kept_trips = code.over_columns ? code.tile_rows : code.tile_columns;
  const int64_t moving_trips = code.over_columns ? code.tile_columns : code.tile_rows;
  // The rows of a packed tile have the same address, so they are not unrolled.
  const int64_t unroll = !code.over_columns && code.expression->is_packed() ? 1 : UnrollOf(moving_trips);
  at.tile_row = code.over_columns ? kept : moving;
  at.tile_column = code.over_columns ? moving : kept;
  builder.BeginLoop(kept, kept_trips);
  // The initial partial result is the neutral element.
  const int neutral = builder.Constant(code.reducer.neutral);
  const int mask = builder.Vector(LloOp::kVMovS, {is_first});
  builder.Store(kept, code.sums, builder.Vector(LloOp::kVSelect, {mask, neutral, builder.Load(kept, code.sums, 200)}),
                200);
  builder.BeginLoop(part, moving_trips / unroll);
  builder.Scalar(LloOp::kSMulI, moving, part, unroll);
  code.expression->EmitAddresses(&builder, &at);
  int sum = -1;
  for (int64_t u = 0; u < unroll; ++u) {
    (code.over_columns ? at.column_offset : at.row_offset) = u;
    int value = code.expression->Emit(&builder, at);
    if (extent >= 0) {
      const int inside = EmitInside(code, at, extent);
      value = builder.Vector(LloOp::kVSelect, {inside, value, builder.Constant(code.reducer.neutral)});
    }
    sum = sum < 0 ? value : builder.Vector(code.reducer.op, {sum, value});
  }
  const int before = builder.Load(kept, code.sums, 200);
  builder.Store(kept, code.sums, builder.Vector(code.reducer.op, {before, sum}), 200);
  builder.EndLoop();
  builder.EndLoop();
}

// Combines the partial results of a block across lanes or sublanes, and with the initial value.
void EmitTotals(const ReduceCode& code, const TileStep& step) {
  LloBuilder& builder = *code.builder;
  const ScalarScope scope(&builder);
  const int kept = builder.NewScalar(), tile = builder.NewScalar();
  builder.BeginLoop(kept, code.over_columns ? code.tile_rows : code.tile_columns);
  int total = builder.Load(kept, code.sums, 200);
  const int count = code.over_columns ? kLanes : kSublanes;
  const LloOp rotate = code.over_columns ? LloOp::kVRotLane : LloOp::kVRotSub;
  for (int by = count / 2; by > 0; by /= 2) {
    total = builder.Vector(code.reducer.op, {total, builder.Vector(rotate, {total}, by)});
  }
  const int loaded = Unpack(&builder, code.initial_type, builder.Load(step.inputs.back(), 0, 99), LloBuilder::zero());
  const int initial = builder.Vector(LloOp::kVBcastSub, {loaded});
  total = builder.Vector(code.reducer.op, {builder.Vector(LloOp::kVBcastLane, {initial}), total});
  RowPosition to{kept, LloBuilder::zero()};
  if (code.over_columns) to = PositionOfRows(&builder, code.result_type, kept);
  builder.ScalarSum(tile, to.tile_row, step.outputs[0]);
  StoreRows(&builder, code.result_type, {tile, 0, to.part, 100}, total);
  builder.EndLoop();
}

}  // namespace

bool LloLowering::LowerReduce(const Instruction& reduce, int out) {
  if (!reduce.shape().is_array() || reduce.operand_count() != 2) return false;
  const Instruction* operand = reduce.operand(0);
  LloReducer reducer;
  if (LloTypeOf(operand->shape().type()) == LloType::kOther || !FindReducer(*reduce.called()[0], &reducer))
    return false;
  Dims along = reduce.dimensions();
  std::sort(along.begin(), along.end());
  const Dims& dims = operand->shape().dims();
  if (along.empty()) return false;
  for (size_t i = 1; i < along.size(); ++i) {
    if (along[i] != along[i - 1] + 1) return false;
  }
  const bool over_columns = along.back() == std::ssize(dims) - 1 && along.size() == 1;
  int64_t outer = 1, reduced = 1, width = 1;
  for (int64_t d = 0; d < std::ssize(dims); ++d) {
    (d < along.front() ? outer : d > along.back() ? width : reduced) *= dims[d];
  }
  // For other reductions, for example over several trailing dimensions, the operand is written to memory first.
  const bool is_simple = over_columns || (along.back() < std::ssize(dims) - 1 && along.back() + 2 == std::ssize(dims));
  std::optional<TileExpression> expression(std::in_place, this, operand, true);
  if (!is_simple) Materialize(operand);
  if (!expression->Build()) {
    Materialize(operand);
    expression.emplace(this, operand, true);
    XLAD_CHECK(expression->Build());
  }
  const bool by_columns = width == 1 && (over_columns || !is_simple);
  const int64_t block_tiles = BlockTiles(kMaxBlockTiles, expression->stream_count() + 2);
  const TileDomain domain = by_columns ? [&] {
    TileDomain made = MapDomain(outer, reduced, block_tiles);
    made.grid.inner = 1;
    return made;
  }()
                                       : ReduceRowsDomain(outer, reduced, width, block_tiles);
  std::vector<TileStream> inputs = expression->StreamsOn(domain);
  inputs.push_back({Materialize(reduce.operand(1)), Dims(domain.grid.counts.size(), 0)});
  inputs.back().type = TypeOf(inputs.back().buffer);
  TileStream output{out, by_columns ? domain.row_steps : Dims{width, domain.columns.block, 0}};
  if (by_columns) {
    output.rows = domain.rows;
  } else {
    output.columns = domain.columns;
    output.row_stride = width;
  }
  output.type = TypeOf(out);
  LloBuilder builder = NewBuilder();
  TilePipeline pipeline(&builder, domain.grid, inputs, {output});
  ReduceCode code{&builder, &*expression, &domain, reducer, by_columns};
  code.initial_type = inputs.back().type;
  code.result_type = output.type;
  code.tile_rows = CeilDiv(domain.rows.block, kSublanes);
  code.tile_columns = CeilDiv(domain.columns.block, kLanes);
  code.sums = builder.NewTiles(by_columns ? code.tile_rows : code.tile_columns);
  pipeline.Run([&](const TileStep& step) {
    EmitSums(code, step);
    EmitTotals(code, step);
  });
  std::vector<int> buffers = expression->buffers();
  buffers.push_back(inputs.back().buffer);
  AddKernel(&builder, buffers, {out});
  return true;
}

}  // namespace xlad::compiler
