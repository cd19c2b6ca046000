// Op rules of reductions over whole dimensions, and scans.
#include <algorithm>

#include "sharding/rules/rules.h"

namespace xlad::sharding {

// reduce(arrays..., initial values...): the initial values are scalars and not mapped.
OpRule ReduceRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  const int64_t arrays = rule.operand_count() / 2;
  const hlo::Opcode reduction =
      instruction.called().empty() ? hlo::Opcode::kReduce : ReductionOf(*instruction.called()[0]);
  const Dims& reduced = instruction.dimensions();
  int64_t result = 0;
  for (int64_t d = 0; d < std::ssize(rule.operand_dims(0)); ++d) {
    const bool gone = std::find(reduced.begin(), reduced.end(), d) != reduced.end();
    const int factor = rule.Add(rule.operand_dims(0)[d],
                                gone ? FactorKind::kReduction : FactorKind::kPassThrough);
    if (gone) rule.factor(factor).reduction = reduction;
    for (int64_t leaf = 0; leaf < arrays; ++leaf) rule.Operand(leaf, d, factor);
    if (gone) continue;
    for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) rule.Result(leaf, result, factor);
    ++result;
  }
  return rule.Finish();
}

// Elements along the scanned dimension depend on all before them. Carries have the arrays' other dimensions.
OpRule ScanRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  if (instruction.dimensions().empty() || rule.operand_count() == 0) return {};
  const int64_t along = instruction.dimensions()[0];
  const Dims& dims = rule.operand_dims(0);
  int64_t carried = 0;
  for (int64_t d = 0; d < std::ssize(dims); ++d) {
    const int factor =
        rule.Add(dims[d], d == along ? FactorKind::kNeedReplication : FactorKind::kPassThrough);
    const auto dimension_in = [&](const Dims& leaf) -> int64_t {
      if (leaf.size() == dims.size()) return d;
      return leaf.size() + 1 == dims.size() && d != along ? carried : -1;
    };
    for (int64_t leaf = 0; leaf < rule.operand_count(); ++leaf) {
      const int64_t at = dimension_in(rule.operand_dims(leaf));
      if (at >= 0) rule.Operand(leaf, at, factor);
    }
    for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) {
      const int64_t at = dimension_in(rule.result_dims(leaf));
      if (at >= 0) rule.Result(leaf, at, factor);
    }
    if (d != along) ++carried;
  }
  return rule.Finish();
}

}  // namespace xlad::sharding
