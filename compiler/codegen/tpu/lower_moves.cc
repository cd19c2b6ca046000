// Copies: transposes, broadcasts, slices, pads, concatenations.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/rounding.h"
#include "base/status.h"
#include "compiler/codegen/tpu/element_code.h"
#include "compiler/codegen/tpu/lowering.h"
#include "compiler/codegen/tpu/packed_tiles.h"

namespace xlad::compiler {

using machine::kLanes;
using machine::kMatrixTiles;
using machine::kSublanes;
using machine::LloType;

namespace {

constexpr int64_t kMaxTileRows = 16, kMaxTileColumns = 8;  // The largest block of a copy.
constexpr int64_t kMaxTiles = kMaxTileRows * kMaxTileColumns;

// The rows and columns of the blocks of a copy of `rows` x `width` elements, with at most `tiles` tiles.
std::pair<int64_t, int64_t> CopyBlock(int64_t rows, int64_t width, int64_t tiles) {
  const int64_t tile_columns = std::min({CeilDiv(width, kLanes), kMaxTileColumns, tiles});
  const int64_t tile_rows = std::min({CeilDiv(rows, kSublanes), kMaxTileRows, tiles / tile_columns});
  return {tile_rows * kSublanes, tile_columns * kLanes};
}

bool IsKnown(const Shape& shape) { return shape.is_array() && LloTypeOf(shape.type()) != LloType::kOther; }

// Stores change(from, u) in each tile of the output's block. The corresponding tile of the input's block is at offset u
// from the register `from`. Tiles are copied as they are, packed or not.
template <typename Change>
void EmitTiles(LloBuilder* builder, const TileStep& step, int64_t tiles, const Change& change) {
  const ScalarScope scope(builder);
  const int at = builder->NewScalar(), from = builder->NewScalar(), to = builder->NewScalar();
  const int64_t unroll = tiles % 4 == 0 ? 4 : 1;
  builder->BeginLoop(at, tiles / unroll);
  builder->Scalar(LloOp::kSMulI, from, at, unroll);
  builder->ScalarSum(to, from, step.outputs[0]);
  builder->ScalarSum(from, from, step.inputs[0]);
  for (int64_t u = 0; u < unroll; ++u) builder->Store(to, u, change(from, u), 100);
  builder->EndLoop();
}

}  // namespace

void LloLowering::EmitMove(const Move& move) {
  const int64_t last = std::ssize(move.sizes) - 1;
  const int64_t width = last < 0 ? 1 : move.sizes[last];
  // The rows of the blocks are along the longest dimension other than the last.
  int64_t row_dim = -1;
  for (int64_t d = 0; d < last; ++d) {
    if (row_dim < 0 || move.sizes[d] >= move.sizes[row_dim]) row_dim = d;
  }
  const int64_t rows = row_dim < 0 ? 1 : move.sizes[row_dim];
  const auto [row_block, column_block] = CopyBlock(rows, width, BlockTiles(kMaxTiles, 2));
  TileGrid grid;
  TileStream from{move.from, {}, move.from_base, row_dim < 0 ? width : move.from_strides[row_dim]};
  TileStream to{move.to, {}, move.to_base, row_dim < 0 ? width : move.to_strides[row_dim]};
  const auto add_axis = [&](int64_t count, int64_t from_step, int64_t to_step) {
    grid.counts.push_back(count);
    from.steps.push_back(from_step);
    to.steps.push_back(to_step);
    return static_cast<int>(grid.counts.size()) - 1;
  };
  for (int64_t d = 0; d < last; ++d) {
    if (d != row_dim) add_axis(move.sizes[d], move.from_strides[d], move.to_strides[d]);
  }
  const int row_axis = add_axis(CeilDiv(rows, row_block), row_block * from.row_stride, row_block * to.row_stride);
  const int column_axis = add_axis(CeilDiv(width, column_block), column_block, column_block);
  from.type = to.type = TypeOf(move.to);
  from.rows = to.rows = {row_axis, row_block, rows};
  from.columns = to.columns = {column_axis, column_block, width};
  LloBuilder builder = NewBuilder();
  TilePipeline pipeline(&builder, grid, {from}, {to});
  pipeline.Run([&](const TileStep& step) {
    EmitTiles(&builder, step, from.tiles(), [&](int base, int64_t u) { return builder.Load(base, u, 0); });
  });
  AddKernel(&builder, {move.from}, {move.to});
}

void LloLowering::EmitFill(int scalar, int to) {
  const int64_t width = result_.program.buffers[to].elements;
  const int64_t column_block = std::min(CeilDiv(width, kLanes), kMaxTileColumns) * kLanes;
  const TileGrid grid{{CeilDiv(width, column_block)}};
  // The word of the scalar is copied to all words of the output. Each of them has the scalar in its first row, and only
  // this row of packed tiles is copied out.
  TileStream from{scalar, {0}};
  from.type = TypeOf(scalar);
  const TileStream out{to, {column_block}, 0, width, {}, {0, column_block, width}, TypeOf(to)};
  LloBuilder builder = NewBuilder();
  TilePipeline pipeline(&builder, grid, {from}, {out});
  pipeline.Run([&](const TileStep& step) {
    EmitTiles(&builder, step, out.tiles(), [&](int, int64_t) {
      const int row = builder.Vector(LloOp::kVBcastSub, {builder.Load(step.inputs[0], 0, 0)});
      return builder.Vector(LloOp::kVBcastLane, {row});
    });
  });
  AddKernel(&builder, {scalar}, {to});
}

void LloLowering::EmitBlockTransposes(int buffer, const Dims& sizes, int out) {
  const int64_t rows = sizes[1], columns = sizes[2];
  const TileGrid grid{{sizes[0], CeilDiv(rows, kLanes), CeilDiv(columns, kLanes)}};
  const BlockExtent row_extent{1, kLanes, rows}, column_extent{2, kLanes, columns};
  const LloType type = TypeOf(buffer);
  const int packing = machine::PackingOf(type);
  const TileStream from{buffer, {rows * columns, kLanes * columns, kLanes}, 0, columns, row_extent, column_extent,
                        type};
  const TileStream to{out, {rows * columns, kLanes, kLanes * rows}, 0, rows, column_extent, row_extent, type};
  LloBuilder builder = NewBuilder();
  TilePipeline pipeline(&builder, grid, {from}, {to});
  pipeline.Run([&](const TileStep& step) {
    const ScalarScope scope(&builder);
    std::vector<int> parts;
    for (int part = 0; part < packing; ++part) parts.push_back(PartRegister(&builder, part));
    for (int t = 0; t < kMatrixTiles; ++t) {
      const int loaded = builder.Load(step.inputs[0], t / packing, 0);
      builder.Push(LloOp::kXPush, {Unpack(&builder, type, loaded, parts[t % packing])});
    }
    for (int t = 0; t < kMatrixTiles; t += packing) {
      int tile = packing == 1 ? 0 : builder.Constant(0);
      for (const int part : parts) tile = Pack(&builder, type, tile, builder.Vector(LloOp::kXPop, {}), part);
      builder.Store(step.outputs[0], t / packing, tile, 100);
    }
  });
  AddKernel(&builder, {buffer}, {out});
}

namespace {

// Removes the dimensions of size 1 from a permutation, and merges dimensions that stay adjacent.
void Simplify(Dims* sizes, Dims* permutation) {
  std::vector<Dims> groups;  // Groups of operand dimensions that stay adjacent, in the order of the result.
  for (const int64_t d : *permutation) {
    if ((*sizes)[d] == 1) continue;
    int64_t next = groups.empty() ? -1 : groups.back().back() + 1;
    while (next >= 0 && next < d && (*sizes)[next] == 1) ++next;
    if (next == d) {
      groups.back().push_back(d);
    } else {
      groups.push_back({d});
    }
  }
  Dims order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return groups[a][0] < groups[b][0]; });
  Dims merged(groups.size()), result(groups.size());
  for (int64_t position = 0; position < std::ssize(order); ++position) {
    merged[position] = 1;
    for (const int64_t d : groups[order[position]]) merged[position] *= (*sizes)[d];
    result[order[position]] = position;
  }
  *sizes = merged;
  *permutation = result;
}

}  // namespace

void LloLowering::EmitPermute(int buffer, const Dims& given_sizes, const Dims& given_permutation, int out) {
  Dims sizes = given_sizes, permutation = given_permutation;
  Simplify(&sizes, &permutation);
  const int64_t last = std::ssize(sizes) - 1;
  if (last < 1) {
    const int64_t elements = tensor::Product(given_sizes);
    return EmitMove({buffer, out, {elements}, {1}, {1}});
  }
  if (permutation[last] == last) {
    const Dims moved = tensor::Select(sizes, permutation);
    return EmitMove({buffer, out, moved, tensor::Select(tensor::Strides(sizes), permutation), tensor::Strides(moved)});
  }
  if (last == 1) return EmitBlockTransposes(buffer, {1, sizes[0], sizes[1]}, out);
  if (last == 2 && permutation == Dims{0, 2, 1}) return EmitBlockTransposes(buffer, sizes, out);
  // Three permutations. The first moves the dimension that becomes the last one to the second-to-last position. The
  // second swaps the last two dimensions. The third brings the other dimensions into the order of the result.
  const int64_t becomes_last = permutation[last];
  Dims before;
  for (const int64_t d : permutation) {
    if (d != becomes_last && d != last) before.push_back(d);
  }
  before.push_back(becomes_last);
  before.push_back(last);
  const int first = Permuted(buffer, sizes, before);
  const Dims first_sizes = tensor::Select(sizes, before);
  Dims swap(sizes.size());
  std::iota(swap.begin(), swap.end(), 0);
  std::swap(swap[last], swap[last - 1]);
  const int second = Permuted(first, first_sizes, swap);
  const Dims second_sizes = tensor::Select(first_sizes, swap), second_dims = tensor::Select(before, swap);
  Dims rest;
  for (const int64_t d : permutation) {
    rest.push_back(std::find(second_dims.begin(), second_dims.end(), d) - second_dims.begin());
  }
  EmitPermute(second, second_sizes, rest, out);
}

int LloLowering::Permuted(int buffer, const Dims& sizes, const Dims& permutation) {
  if (std::is_sorted(permutation.begin(), permutation.end())) return buffer;
  const machine::LloBuffer& from = result_.program.buffers[buffer];
  const int out = NewBuffer(from.name + ".t", from.type, from.elements);
  EmitPermute(buffer, sizes, permutation, out);
  return out;
}

bool LloLowering::LowerBroadcast(const Instruction& broadcast, int out) {
  const Shape &operand = broadcast.operand(0)->shape(), &shape = broadcast.shape();
  if (!IsKnown(shape)) return false;
  int from = Materialize(broadcast.operand(0));
  if (operand.elements() == 1) {
    EmitFill(from, out);
    return true;
  }
  // The dimensions of the operand in the order of the result.
  Dims order(operand.ndim());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return broadcast.dimensions()[a] < broadcast.dimensions()[b]; });
  from = Permuted(from, operand.dims(), order);
  const Dims positions = tensor::Select(broadcast.dimensions(), order),
             operand_sizes = tensor::Select(operand.dims(), order);
  // First, the leading dimensions of the result are copied, up to the last dimension that the operand has. Then each
  // element is repeated along a row.
  int64_t last = -1;
  for (size_t d = 0; d < positions.size(); ++d) {
    if (operand_sizes[d] > 1) last = positions[d];
  }
  const Dims sizes(shape.dims().begin(), shape.dims().begin() + last + 1);
  const int64_t copied = tensor::Product(sizes), width = shape.elements() / copied;
  const Dims operand_strides = tensor::Strides(operand_sizes);
  Dims strides(sizes.size(), 0);
  for (size_t d = 0; d < positions.size(); ++d) {
    if (positions[d] <= last && operand_sizes[d] > 1) strides[positions[d]] = operand_strides[d];
  }
  const int rows = width == 1 ? out : NewBuffer(broadcast, shape, ".rows");
  if (width != 1) result_.program.buffers[rows].elements = copied;
  if (width != 1) result_.bytes[rows] = copied * machine::BytesOf(LloTypeOf(shape.type()));
  EmitMove({from, rows, sizes, strides, tensor::Strides(sizes)});
  if (width == 1) return true;
  const auto [row_block, column_block] = CopyBlock(copied, width, BlockTiles(kMaxTiles, 2));
  const TileGrid grid{{CeilDiv(copied, row_block), CeilDiv(width, column_block)}};
  const BlockExtent row_extent{0, row_block, copied};
  const LloType type = TypeOf(out);
  const TileStream in{rows, {row_block, 0}, 0, 1, row_extent, {}, type};
  const TileStream to{out, {row_block * width, column_block}, 0, width, row_extent, {1, column_block, width}, type};
  LloBuilder builder = NewBuilder();
  TilePipeline pipeline(&builder, grid, {in}, {to});
  pipeline.Run([&](const TileStep& step) {
    const ScalarScope scope(&builder);
    const int row = builder.NewScalar(), address = builder.NewScalar(), tile = builder.NewScalar();
    builder.BeginLoop(row, to.packed_rows());  // A word has the same rows in each lane.
    builder.ScalarSum(address, row, step.inputs[0]);
    builder.Scalar(LloOp::kSMulI, tile, row, to.tile_columns());
    builder.ScalarSum(tile, tile, step.outputs[0]);
    const int value = builder.Vector(LloOp::kVBcastLane, {builder.Load(address, 0, 0)});
    for (int64_t c = 0; c < to.tile_columns(); ++c) builder.Store(tile, c, value, 100);
    builder.EndLoop();
  });
  AddKernel(&builder, {rows}, {out});
  return true;
}

bool LloLowering::LowerSlice(const Instruction& slice, int out) {
  if (!IsKnown(slice.shape())) return false;
  const Dims& dims = slice.shape().dims();
  const auto& bounds = slice.attributes().slice;
  if (dims.empty() || (bounds.back().stride != 1 && dims.back() > 1)) return false;
  Move move{Materialize(slice.operand(0)), out, dims, tensor::Strides(slice.operand(0)->shape().dims()),
            tensor::Strides(dims)};
  for (size_t d = 0; d < dims.size(); ++d) {
    move.from_base += bounds[d].start * move.from_strides[d];
    move.from_strides[d] *= bounds[d].stride;
  }
  EmitMove(move);
  return true;
}

bool LloLowering::LowerPad(const Instruction& pad, int out) {
  if (!IsKnown(pad.shape()) || pad.shape().dims().empty() || pad.operand(0)->shape().elements() == 0) return false;
  const Dims& dims = pad.operand(0)->shape().dims();
  Move move{Materialize(pad.operand(0)), out, dims, tensor::Strides(dims), tensor::Strides(pad.shape().dims())};
  for (size_t d = 0; d < dims.size(); ++d) {
    const hlo::PaddingDimension& padding = pad.attributes().padding[d];
    if (padding.low < 0 || padding.high < 0 || padding.interior != 0) return false;
    move.to_base += padding.low * move.to_strides[d];
  }
  EmitFill(Materialize(pad.operand(1)), out);
  EmitMove(move);
  return true;
}

bool LloLowering::LowerConcatenate(const Instruction& concatenate, int out) {
  if (!IsKnown(concatenate.shape())) return false;
  const int64_t along = concatenate.dimensions()[0];
  const Dims strides = tensor::Strides(concatenate.shape().dims());
  int64_t at = 0;
  for (const Instruction* operand : concatenate.operands()) {
    const Dims& dims = operand->shape().dims();
    if (operand->shape().elements() > 0) {
      EmitMove({Materialize(operand), out, dims, tensor::Strides(dims), strides, 0, at * strides[along]});
    }
    at += dims[along];
  }
  return true;
}

}  // namespace xlad::compiler
