// Reductions on shards.
#include <algorithm>

#include "sharding/model/axes.h"
#include "sharding/partition/identity.h"
#include "sharding/partition/ops/families.h"
#include "sharding/partition/ops/reducer_laws.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// The opcode by which a collective can combine the partial results, or nullopt if there is none.
std::optional<Opcode> CollectiveReduction(const Instruction& reduce) {
  if (reduce.operand_count() != 2) return std::nullopt;
  return ReducerWithIdentity(*reduce.called()[0], reduce.operand(0)->shape().type());
}

// Whether all reduced dimensions that are major to `dim` have one element.
bool IsMostMajorReduced(const Instruction& reduce, int64_t dim) {
  const Dims& dims = reduce.operand(0)->shape().dims();
  return std::all_of(reduce.dimensions().begin(), reduce.dimensions().end(),
                     [&](int64_t d) { return d >= dim || dims[d] == 1; });
}

}  // namespace

// If collectives support the reducer, every dimension may be split. Otherwise a dimension is split only if the laws of
// the reducer allow it. If the reducer does not commute, only the most major reduced dimension may be split, because
// its shards are consecutive elements.
std::vector<bool> SplitReduce(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  const bool known = CollectiveReduction(instruction).has_value();
  std::optional<ReducerLaws> laws;
  for (int64_t d : instruction.dimensions()) {
    for (int f : rule.operands[0][d]) {
      if (rule.factors[f].kind != FactorKind::kReduction) continue;
      if (!known && !laws) laws = LawsOf(instruction);
      result[f] = known || (laws->combines_parts && (laws->commutes || IsMostMajorReduced(instruction, d)));
    }
  }
  return result;
}

namespace {

// The axes that split reduced dimensions, major to minor, which is the order of the parts.
AxisList PartAxes(const LocalOp& op, const Dims& dims) {
  AxisList axes;
  for (int64_t d : dims) {
    for (int f : op.rule->operands[0][d]) {
      const AxisList& own = (*op.assignment)[f].axes;
      axes.insert(axes.end(), own.begin(), own.end());
    }
  }
  return axes;
}

// Emits a reduction with a reducer that collectives do not support, such as argmax. Every device reduces its part,
// starting from the initial values. The results are gathered in order and reduced once more. See
// ReducerLaws::combines_parts.
void CombineParts(LocalBuilder& local, LocalOp& op, const Dims& dims) {
  hlo::Builder& builder = local.builder();
  const size_t count = op.operands.size() / 2;
  std::vector<Instruction*> parts, inits;
  for (size_t i = 0; i < count; ++i) inits.push_back(op.operands[count + i].local);
  for (size_t i = 0; i < count; ++i) parts.push_back(local.MaskPadding(op.operands[i], dims, inits[i]));
  parts.insert(parts.end(), inits.begin(), inits.end());
  SetResults(local, op, local.CloneLocal(*op.source, LocalResultShape(op), parts));
  const AxisList axes = PartAxes(op, dims);
  for (size_t i = 0; i < count; ++i) {
    Instruction* own = op.results[i].local;
    Dims one = own->shape().dims();
    one.insert(one.begin(), 1);
    parts[i] = local.GatherPieces(
        op.operands[i], builder.Reshape(own, one), 0, axes,
        {op.source, "a reduced dimension is split, and the results of all devices' parts are reduced once more"});
  }
  builder.set_template(op.source);
  Instruction* combined = local.CloneLocal(*op.source, LocalResultShape(op), parts);
  combined->set_dimensions({0});
  SetResults(local, op, combined);
  for (LocalArray& result : op.results) {
    std::erase_if(result.sharding.unreduced, [&](const AxisRef& axis) { return OverlapsAny(axis, axes); });
  }
}

}  // namespace

// The initial value must count once, regardless of the number of shards. If it is a neutral start (IsNeutralStart),
// every device reduces from it. Otherwise the first device of each group reduces from it, and the others from the
// identity.
absl::Status EmitReduce(LocalBuilder& local, LocalOp& op) {
  const Dims dims = ReducedDims(op, 0);
  if (dims.empty()) return EmitSame(local, op);
  const std::optional<Opcode> reduction = CollectiveReduction(*op.source);
  if (!reduction) {
    CombineParts(local, op, dims);
    return absl::OkStatus();
  }
  hlo::Builder& builder = local.builder();
  Instruction* init = op.operands[1].local;
  Instruction* identity = init;
  if (!IsNeutralStart(*init, *reduction)) {
    identity = IdentityOf(builder, *reduction, op.operands[0].global.type);
    init = builder.Select(local.IsFirst(op.results[0].sharding.unreduced), init, identity);
  }
  Instruction* masked = local.MaskPadding(op.operands[0], dims, identity);
  SetResults(local, op, local.CloneLocal(*op.source, LocalResultShape(op), {masked, init}));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
