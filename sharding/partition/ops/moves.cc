// Slice, pad, reverse and concatenate along split dimensions: elements of a shard of the result that are in other
// shards of the operand are fetched by halo exchanges.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "sharding/partition/ops/families.h"
#include "sharding/partition/ops/window_halo.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;

// A split dimension along which the op moves elements to other indices.
struct MovedDim {
  size_t operand = 0;
  int64_t dim = 0;
  int64_t shards = 1;
  WindowNeed need;
};

int64_t DimOf(const Instruction& x, size_t d) { return x.shape().dims()[d]; }

// The index of the first element of every shard.
Dims ShardStarts(int64_t size, int64_t shards) {
  Dims starts;
  for (int64_t k = 0; k < shards; ++k) starts.push_back(k * ShardSize(size, shards));
  return starts;
}

WindowNeed PadNeed(const Instruction& pad, size_t d, int64_t shards) {
  const hlo::PaddingDimension& padding = pad.attributes().padding[d];
  const int64_t size = DimOf(*pad.operand(0), d);
  Dims starts = ShardStarts(DimOf(pad, d), shards);
  for (int64_t& start : starts) start -= padding.low;
  return NeedOf(size, ShardSize(size, shards), starts, ShardSize(DimOf(pad, d), shards), padding.interior + 1);
}

WindowNeed SliceNeed(const Instruction& op, size_t d, int64_t shards) {
  const hlo::SliceDimension& slice = op.attributes().slice[d];
  const int64_t size = DimOf(*op.operand(0), d);
  Dims starts = ShardStarts(DimOf(op, d), shards);
  for (int64_t& start : starts) start = slice.start + start * slice.stride;
  WindowNeed need = NeedOf(size, ShardSize(size, shards), starts,
                           (ShardSize(DimOf(op, d), shards) - 1) * slice.stride + 1, 1);
  need.need.first = slice.start;
  need.need.limit = slice.start + (DimOf(op, d) - 1) * slice.stride + 1;
  return need;
}

WindowNeed ReverseNeed(const Instruction& op, size_t d, int64_t shards) {
  const int64_t size = DimOf(op, d), shard = ShardSize(size, shards);
  Dims starts;
  for (int64_t k = 0; k < shards; ++k) starts.push_back(size - (k + 1) * shard);
  return NeedOf(size, shard, starts, shard, 1);
}

bool Moves(const Instruction& op, size_t d) {
  switch (op.opcode()) {
    case hlo::Opcode::kSlice: return DimOf(op, d) != DimOf(*op.operand(0), d);
    case hlo::Opcode::kPad: return op.attributes().padding[d] != hlo::PaddingDimension{};
    case hlo::Opcode::kReverse:
    case hlo::Opcode::kConcatenate:
      return Contains(op.dimensions(), d);
    default: return false;
  }
}

// What the shards of an instruction need along a dimension that is split into `shards` shards.
using NeedFunction = WindowNeed (*)(const Instruction& op, size_t d, int64_t shards);

std::vector<MovedDim> MovedDims(const Instruction& op, const OpRule& rule, const Assignment& assignment,
                                NeedFunction need) {
  std::vector<MovedDim> moved;
  for (int64_t d = 0; d < std::ssize(rule.results[0]); ++d) {
    const int64_t shards = ShardCount(AxesOf(assignment, rule.results[0][d]));
    if (shards > 1 && Moves(op, d)) moved.push_back({0, d, shards, need(op, d, shards)});
  }
  return moved;
}

Halos HalosOf(std::vector<MovedDim> moved) {
  Halos halos;
  for (MovedDim& m : moved) halos.push_back({m.operand, m.dim, std::move(m.need.need)});
  return halos;
}

ReshardCause CauseOf(const LocalOp& op, const MovedDim& moved) {
  return {op.source, absl::StrCat("along dimension ", moved.dim, " of operand ", moved.operand, ", which is split ",
                                  moved.shards, " ways, elements move to other shards")};
}

}  // namespace

std::vector<bool> SplitMoving(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  if (instruction.shape().elements() == 0) return result;
  for (const Instruction* operand : instruction.operands()) {
    if (operand->shape().elements() == 0) return result;
  }
  for (size_t d = 0; d < rule.results[0].size(); ++d) {
    if (!Moves(instruction, d)) continue;
    for (int f : rule.results[0][d]) result[f] = true;
  }
  return result;
}

Halos PadHalos(const Instruction& instruction, const OpRule& rule, const Assignment& assignment) {
  return HalosOf(MovedDims(instruction, rule, assignment, PadNeed));
}

absl::Status EmitPad(LocalBuilder& local, LocalOp& op) {
  LocalArray x = op.operands[0];
  std::vector<hlo::PaddingDimension> padding = op.source->attributes().padding;
  for (const MovedDim& moved : MovedDims(*op.source, *op.rule, *op.assignment, PadNeed)) {
    x.local = FetchWindow(local, {x, moved.dim, op.operands[1].local, CauseOf(op, moved)}, moved.need, nullptr);
    padding[moved.dim] = {};
  }
  const bool rest = std::any_of(padding.begin(), padding.end(),
                                [](const hlo::PaddingDimension& p) { return p != hlo::PaddingDimension{}; });
  if (rest) {
    x.local = local.CloneLocal(*op.source, LocalResultShape(op), {x.local, op.operands[1].local});
    x.local->mutable_attributes().padding = std::move(padding);
  }
  op.results[0].local = x.local;
  return absl::OkStatus();
}

Halos SliceHalos(const Instruction& instruction, const OpRule& rule, const Assignment& assignment) {
  return HalosOf(MovedDims(instruction, rule, assignment, SliceNeed));
}

// Returns the operand with the elements that each shard of the result needs in the dimensions that the op moves.
LocalArray FetchMoved(LocalBuilder& local, const LocalOp& op, NeedFunction need) {
  LocalArray x = op.operands[0];
  for (const MovedDim& moved : MovedDims(*op.source, *op.rule, *op.assignment, need)) {
    x.local = FetchHalo(local, {x, moved.dim, nullptr, CauseOf(op, moved)}, moved.need.need);
  }
  return x;
}

// Along split dimensions that the slice cuts, elements of other shards are fetched by halo exchanges. Dimensions that
// are not split keep their bounds.
absl::Status EmitSlice(LocalBuilder& local, LocalOp& op) {
  LocalArray x = FetchMoved(local, op, SliceNeed);
  std::vector<hlo::SliceDimension> slice = op.source->attributes().slice;
  bool rest = false;
  for (size_t d = 0; d < slice.size(); ++d) {
    const int64_t size = x.local->shape().dims()[d];
    const bool split = !x.sharding.dims[d].axes.empty();
    if (split) slice[d] = {0, size, Moves(*op.source, d) ? slice[d].stride : 1};
    rest |= slice[d].start != 0 || slice[d].limit != size || slice[d].stride != 1;
  }
  if (rest) {
    x.local = local.CloneLocal(*op.source, LocalResultShape(op), {x.local});
    x.local->mutable_attributes().slice = std::move(slice);
  }
  op.results[0].local = x.local;
  return absl::OkStatus();
}

Halos ReverseHalos(const Instruction& instruction, const OpRule& rule, const Assignment& assignment) {
  return HalosOf(MovedDims(instruction, rule, assignment, ReverseNeed));
}

absl::Status EmitReverse(LocalBuilder& local, LocalOp& op) {
  const LocalArray x = FetchMoved(local, op, ReverseNeed);
  SetResults(local, op, local.CloneLocal(*op.source, LocalResultShape(op), {x.local}));
  return absl::OkStatus();
}

namespace {

// A part of a concatenation. If its operand is a slice along the same dimension (as in a roll), the part is fetched
// from the sliced array, so that elements are moved once. Otherwise it is fetched from the operand.
struct ConcatenatedPart {
  MovedDim moved;
  int64_t begin = 0;  // The part's first index in the result.
  bool sliced = false;
};

std::vector<ConcatenatedPart> PartsOf(const Instruction& op, const OpRule& rule, const Assignment& assignment) {
  std::vector<ConcatenatedPart> parts;
  const int64_t along = op.dimensions()[0];
  const int64_t shards = ShardCount(AxesOf(assignment, rule.results[0][along]));
  if (shards == 1) return parts;
  int64_t begin = 0;
  for (size_t i = 0; i < op.operand_count(); ++i) {
    const Instruction& operand = *op.operand(i);
    const bool sliced = IsSliceAlong(operand, along);
    const int64_t size = DimOf(sliced ? *operand.operand(0) : operand, along);
    const int64_t first = sliced ? operand.attributes().slice[along].start : 0;
    Dims starts = ShardStarts(DimOf(op, along), shards);
    for (int64_t& start : starts) start += first - begin;
    WindowNeed need = NeedOf(size, ShardSize(size, shards), starts, ShardSize(DimOf(op, along), shards), 1);
    need.need.first = first;
    need.need.limit = first + DimOf(operand, along);
    parts.push_back({{i, along, shards, std::move(need)}, begin, sliced});
    begin += DimOf(operand, along);
  }
  return parts;
}

}  // namespace

Halos ConcatenateHalos(const Instruction& instruction, const OpRule& rule, const Assignment& assignment) {
  Halos halos;
  for (ConcatenatedPart& part : PartsOf(instruction, rule, assignment)) {
    halos.push_back({part.moved.operand, part.moved.dim, std::move(part.moved.need.need)});
  }
  return halos;
}

// Every part is fetched with the length of a shard of the result. It replaces the earlier parts at all indices from its
// first index on.
absl::Status EmitConcatenate(LocalBuilder& local, LocalOp& op) {
  const std::vector<ConcatenatedPart> parts = PartsOf(*op.source, *op.rule, *op.assignment);
  if (parts.empty()) return EmitSame(local, op);
  hlo::Builder& builder = local.builder();
  Instruction* result = nullptr;
  for (const ConcatenatedPart& part : parts) {
    const LocalArray& from = part.sliced ? op.sliced[part.moved.operand] : op.operands[part.moved.operand];
    const HaloFetch fetch{from, part.moved.dim, nullptr, CauseOf(op, part.moved)};
    Instruction* x = FetchHalo(local, fetch, part.moved.need.need);
    builder.set_template(op.source);
    if (result == nullptr) {
      result = x;
      continue;
    }
    const int64_t size = DimOf(*op.source, part.moved.dim), shards = part.moved.shards;
    Instruction* from_here = IsIndexInRange(local, fetch.split(), ShardStarts(size, shards), x->shape().dims(),
                                      {part.begin, ShardSize(size, shards) * shards});
    result = builder.Select(from_here, x, result);
  }
  op.results[0].local = result;
  return absl::OkStatus();
}

}  // namespace xlad::sharding
