// Rules of reductions over complete dimensions, and of scans.
#include "base/containers.h"
#include "sharding/rules/rules.h"
#include "tensor/indices.h"

namespace xlad::sharding {
namespace {

// reduce(arrays..., initial values...). The initial values are scalars and have no factors.
OpRule ReduceRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t arrays = rule.operand_count() / 2;
  const hlo::Opcode reduction =
      instruction.called().empty() ? hlo::Opcode::kReduce : ReductionOf(*instruction.called()[0]);
  int64_t result = 0;
  for (const int64_t d : tensor::Indices(rule.operand_dims(0))) {
    const bool reduced = Contains(instruction.dimensions(), d);
    const int factor =
        rule.Add(rule.operand_dims(0)[d], reduced ? FactorKind::kReduction : FactorKind::kPassThrough);
    for (int64_t leaf = 0; leaf < arrays; ++leaf) rule.Operand(leaf, d, factor);
    if (reduced) {
      rule.factor(factor).reduction = reduction;
      continue;
    }
    for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) rule.Result(leaf, result, factor);
    ++result;
  }
  return rule.Finish();
}

// An element depends on all elements before it along the scanned dimension. The carries have the arrays' other
// dimensions.
OpRule ScanRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  if (instruction.dimensions().empty() || rule.operand_count() == 0) return {};
  const int64_t along = instruction.dimensions()[0];
  const Dims dims = rule.operand_dims(0);
  int64_t carried = 0;  // The number of dimensions before d that carries have.
  for (const int64_t d : tensor::Indices(dims)) {
    const int factor = rule.Add(dims[d], d == along ? FactorKind::kNeedReplication : FactorKind::kPassThrough);
    const auto dimension_in = [&](const Dims& leaf) -> std::optional<int64_t> {
      if (leaf.size() == dims.size()) return d;
      if (leaf.size() + 1 == dims.size() && d != along) return carried;
      return std::nullopt;
    };
    for (int64_t leaf = 0; leaf < rule.operand_count(); ++leaf) {
      if (const auto at = dimension_in(rule.operand_dims(leaf))) rule.Operand(leaf, *at, factor);
    }
    for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) {
      if (const auto at = dimension_in(rule.result_dims(leaf))) rule.Result(leaf, *at, factor);
    }
    if (d != along) ++carried;
  }
  return rule.Finish();
}

constexpr RuleRow kReduceRules[] = {
    {hlo::Opcode::kReduce, ReduceRule},
    {hlo::Opcode::kScan, ScanRule},
};

}  // namespace

absl::Span<const RuleRow> ReduceRules() { return kReduceRules; }

}  // namespace xlad::sharding
