// Reductions on shards.
#include <algorithm>

#include "sharding/model/axes.h"
#include "sharding/partition/op_family.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;

// Whether a scalar operand is the constant that `identity` is.
bool IsConstant(const Instruction& scalar, const Instruction& identity) {
  return scalar.opcode() == hlo::Opcode::kConstant && !scalar.literal()->elided &&
         scalar.literal()->array == identity.literal()->array;
}

}  // namespace

std::vector<bool> SplitReduce(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    result[f] = result[f] || rule.factors[f].kind == FactorKind::kReduction;
  }
  return result;
}

namespace {

// Several operands reduced together (argmax), or a reducer that is no single opcode: what each device makes of its
// part, from the initial values on (which must leave everything as it is), is gathered and reduced once more.
void CombineParts(Emitter& emitter, LocalOp& op, const Dims& dims) {
  hlo::Builder& builder = emitter.builder();
  const size_t count = op.operands.size() / 2;
  std::vector<Instruction*> parts, inits;
  for (size_t i = 0; i < count; ++i) inits.push_back(op.operands[count + i].local);
  for (size_t i = 0; i < count; ++i) parts.push_back(emitter.MaskPadding(op.operands[i], dims, inits[i]));
  parts.insert(parts.end(), inits.begin(), inits.end());
  SetResults(emitter, op, emitter.CloneLocal(*op.source, LocalResultShape(op), parts));
  const AxisList axes = ReducedAxes(*op.rule, *op.assignment);
  for (size_t i = 0; i < count; ++i) {
    Instruction* own = op.results[i].local;
    Dims one = own->shape().dims();
    one.insert(one.begin(), 1);
    parts[i] = emitter.GatherParts(
        op.operands[i], builder.Reshape(own, one), 0, axes,
        {op.source, "a reduced dimension is split, and what every device makes of its part is reduced once more"});
  }
  builder.set_template(op.source);
  Instruction* whole = emitter.CloneLocal(*op.source, LocalResultShape(op), parts);
  whole->set_dimensions({0});
  SetResults(emitter, op, whole);
  for (LocalArray& result : op.results) {
    std::erase_if(result.sharding.unreduced, [&](const AxisRef& axis) { return OverlapsAny(axis, axes); });
  }
}

}  // namespace

// Each shard reduces from the identity, so that the initial value counts once however many shards there are: it is
// either the identity itself or is combined with the whole result afterwards (which the caller's all-reduce makes, so
// then device 0 of each group starts from it).
absl::Status EmitReduce(Emitter& emitter, LocalOp& op) {
  const Dims dims = ReducedDims(op, 0);
  if (dims.empty()) return EmitSame(emitter, op);
  hlo::Builder& builder = emitter.builder();
  const LocalArray& x = op.operands[0];
  const hlo::Opcode reduction = op.results[0].sharding.unreduced_reduction;
  if (op.operands.size() != 2 || !HasIdentity(reduction, x.global.type)) {
    CombineParts(emitter, op, dims);
    return absl::OkStatus();
  }
  Instruction* identity = IdentityOf(emitter, reduction, x.global.type);
  XLAD_CHECK(identity != nullptr) << "a reduction without identity was split";
  Instruction* init = op.operands[1].local;
  if (!IsConstant(*init, *identity)) {
    Instruction* position = emitter.Position(op.results[0].sharding.unreduced);
    Instruction* first = builder.Compare(hlo::Comparison::kEq, position, builder.Scalar(tensor::ElementType::kS32, 0));
    init = builder.Select(first, init, identity);
  }
  Instruction* masked = emitter.MaskPadding(x, dims, identity);
  SetResults(emitter, op, emitter.CloneLocal(*op.source, LocalResultShape(op), {masked, init}));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
