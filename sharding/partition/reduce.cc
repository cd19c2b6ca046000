// Reductions on shards.
#include <algorithm>

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

// Partial results of several operands reduced together (argmax) cannot be combined by one binary opcode.
std::vector<bool> SplitReduce(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThroughAndReduced(instruction, rule);
  const bool single = instruction.shape().is_array();
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (rule.factors[f].kind != FactorKind::kReduction) continue;
    result[f] = result[f] && single && HasIdentity(rule.factors[f].reduction, instruction.shape().type());
  }
  return result;
}

// Each shard reduces from the identity, so that the initial value counts once however many shards there are: it is
// either the identity itself or is combined with the whole result afterwards (which the caller's all-reduce makes, so
// then device 0 of each group starts from it).
absl::Status EmitReduce(Emitter& emitter, LocalOp& op) {
  const Dims dims = op.operands.size() == 2 ? ReducedDims(op, 0) : Dims{};
  if (dims.empty()) return EmitSame(emitter, op);
  hlo::Builder& builder = emitter.builder();
  const LocalArray& x = op.operands[0];
  const hlo::Opcode reduction = op.results[0].sharding.unreduced_reduction;
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
