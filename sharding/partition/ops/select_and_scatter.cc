// Select-and-scatter on shards: every device computes all windows that overlap its shard of the operand. It fetches the
// elements of its neighbors' shards that these windows cover, and keeps its own shard of the sums.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "hlo/build/builder.h"
#include "sharding/partition/identity.h"
#include "sharding/partition/ops/families.h"
#include "sharding/partition/ops/window_halo.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;

struct ScatteredDim {
  int64_t dim = 0;
  HaloNeed operand, source;
  Dims own;  // By shard: the index of its first element in the fetched operand.
};

ScatteredDim PlanDim(int64_t dim, int64_t size, int64_t windows, const hlo::WindowDimension& window, int64_t shards) {
  const int64_t shard = ShardSize(size, shards), low = window.padding_low, stride = window.stride;
  ScatteredDim split{dim, {size, shard, {}, 0, 0, size}, {windows, ShardSize(windows, shards), {}, 0, 0, windows}, {}};
  for (int64_t k = 0; k < shards; ++k) {
    const int64_t begin = k * shard, end = begin + shard;
    // All windows that overlap the shard, and further windows at both ends if those windows do not cover the shard.
    const int64_t first = std::min(CeilDivide(begin - window.size + 1 + low, stride), FloorDivide(begin + low, stride));
    const int64_t last = std::max(FloorDivide(end - 1 + low, stride), CeilDivide(end - window.size + low, stride));
    split.source.starts.push_back(first);
    split.source.length = std::max(split.source.length, last - first + 1);
    split.operand.starts.push_back(first * stride - low);
    split.own.push_back(begin - split.operand.starts.back());
  }
  split.operand.length = (split.source.length - 1) * stride + window.size;
  return split;
}

std::vector<ScatteredDim> ScatteredDims(const Instruction& instruction, const OpRule& rule,
                                        const Assignment& assignment) {
  const Dims& dims = instruction.operand(0)->shape().dims();
  std::vector<ScatteredDim> split;
  for (int64_t d = 0; d < std::ssize(dims); ++d) {
    const hlo::WindowDimension& window = (*instruction.attributes().window)[d];
    const int64_t shards = ShardCount(AxesOf(assignment, rule.operands[0][d]));
    if (shards == 1 || window == hlo::WindowDimension{}) continue;
    const int64_t windows = instruction.operand(1)->shape().dims()[d];
    split.push_back(PlanDim(d, dims[d], windows, window, shards));
  }
  return split;
}

// The bits of a NaN that marks elements outside of the array, or 0 if the type has no such NaN. NaNs that arithmetic
// computes do not have this payload.
uint64_t OutsideBits(tensor::ElementType type) {
  switch (type) {
    case tensor::ElementType::kF64:
      return 0x7FFD51AC351AC353;
    case tensor::ElementType::kF32:
      return 0x7FD51AC3;
    case tensor::ElementType::kBF16:
      return 0x7FF5;
    case tensor::ElementType::kF16:
      return 0x7F6B;
    default:
      return 0;
  }
}

tensor::Array OutsideMark(tensor::ElementType type) {
  const uint64_t bits = OutsideBits(type);
  tensor::Array mark({type, {}});
  std::memcpy(mark.bytes().data(), &bits, mark.bytes().size());
  return mark;
}

// Whether elements outside of the array may be marked by a NaN. The selection must be a comparison of its two
// parameters that is false if one of them is NaN.
bool CanMarkOutside(const Instruction& instruction) {
  const Instruction& root = *instruction.called()[0]->root();
  if (root.opcode() != hlo::Opcode::kCompare) return false;
  const Instruction &a = *root.operand(0), &b = *root.operand(1);
  const bool direct = a.opcode() == hlo::Opcode::kParameter && b.opcode() == hlo::Opcode::kParameter &&
                      a.number() == 0 && b.number() == 1;
  return direct && OutsideBits(a.shape().type()) != 0 &&
         root.attributes().comparison_type != hlo::ComparisonType::kFloatTotalOrder &&
         root.attributes().comparison != hlo::Comparison::kNe;
}

// The selection (a, b) -> select(a, b) or "b is outside". An element outside is never kept instead of one inside,
// because the comparison is false for NaN. (If the mark were the identity of the maximum, it could be kept instead of
// an element that equals it.)
hlo::Computation* SelectInside(LocalBuilder& local, const hlo::Computation& select) {
  hlo::Module* module = local.context().module();
  const tensor::ElementType type = select.parameter(0)->shape().type();
  hlo::Computation* made =
      module->Add(std::make_unique<hlo::Computation>(module->UniqueName(absl::StrCat(select.name(), ".inside"))));
  hlo::Builder builder(made);
  Instruction* a = builder.Parameter(0, select.parameter(0)->shape());
  Instruction* b = builder.Parameter(1, select.parameter(1)->shape());
  Instruction* keeps = builder.Compare(select.root()->attributes().comparison, a, b);
  const tensor::ElementType bits = tensor::UnsignedOfWidth(tensor::BitWidth(type));
  const tensor::Array outside = OutsideMark(type);
  const auto bytes = outside.bytes();
  Instruction* mark = builder.Constant(tensor::Array({bits, {}}, {bytes.begin(), bytes.end()}));
  Instruction* found =
      made->Add(std::make_unique<Instruction>(hlo::Opcode::kBitcastConvert, hlo::Shape(bits, {})), {b});
  made->set_root(builder.Binary(hlo::Opcode::kOr, keeps, builder.Compare(hlo::Comparison::kEq, found, mark)));
  return made;
}

}  // namespace

std::vector<bool> SplitSelectAndScatter(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  const bool sums = ReducerWithIdentity(*instruction.called()[1], instruction.shape().type()).has_value();
  for (size_t d = 0; d < rule.results[0].size(); ++d) {
    const hlo::WindowDimension& window = (*instruction.attributes().window)[d];
    const bool inside = window.padding_low == 0 && window.padding_high == 0;
    const bool plain = window.base_dilation == 1 && window.window_dilation == 1;
    const bool any = instruction.operand(0)->shape().elements() > 0 && instruction.operand(1)->shape().elements() > 0;
    for (int f : rule.results[0][d]) {
      const bool halo = any && sums && plain && (inside || CanMarkOutside(instruction));
      result[f] = window == hlo::WindowDimension{} ? result[f] : halo;
    }
  }
  return result;
}

Halos SelectAndScatterHalos(const Instruction& instruction, const OpRule& rule, const Assignment& assignment) {
  Halos halos;
  for (ScatteredDim& split : ScatteredDims(instruction, rule, assignment)) {
    halos.push_back({0, split.dim, std::move(split.operand)});
    halos.push_back({1, split.dim, std::move(split.source)});
  }
  return halos;
}

absl::Status EmitSelectAndScatter(LocalBuilder& local, LocalOp& op) {
  const std::vector<ScatteredDim> splits = ScatteredDims(*op.source, *op.rule, *op.assignment);
  if (splits.empty()) return EmitSame(local, op);
  hlo::Window window = *op.source->attributes().window;
  LocalArray operand = op.operands[0], source = op.operands[1];
  const bool marks = CanMarkOutside(*op.source);
  Instruction* outside = marks ? local.builder().Constant(OutsideMark(operand.global.type)) : nullptr;
  const hlo::Opcode scatter = *hlo::ReducerOpcode(*op.source->called()[1]);
  Instruction* init = op.operands[2].local;
  Instruction* neutral =
      IsNeutralStart(*init, scatter) ? init : IdentityOf(local.builder(), scatter, source.global.type);
  for (const ScatteredDim& split : splits) {
    hlo::WindowDimension& dimension = window[split.dim];
    const std::string what = absl::StrCat("windows over dimension ", split.dim, " (size ", dimension.size, ", stride ",
                                          dimension.stride, ") reach into other shards");
    operand.local = FetchHalo(local, {operand, split.dim, outside, {op.source, what}}, split.operand);
    source.local = FetchHalo(local, {source, split.dim, neutral, {op.source, what}}, split.source);
    dimension.padding_low = dimension.padding_high = 0;
  }
  local.builder().set_template(op.source);
  Instruction* result =
      local.CloneLocal(*op.source, operand.local->shape(), {operand.local, source.local, op.operands[2].local});
  result->mutable_attributes().window = std::move(window);
  if (marks) result->mutable_called()[0] = SelectInside(local, *op.source->called()[0]);
  for (const ScatteredDim& split : splits) {
    const SplitDim along{split.dim, operand.sharding.dims[split.dim].axes};
    result = SliceByPosition(local, result, along, split.own, split.operand.shard);
  }
  SetResults(local, op, result);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
