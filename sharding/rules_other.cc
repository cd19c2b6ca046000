// Op rules of collectives that stand in the user's own program, and of custom calls.
#include <algorithm>

#include "sharding/rules.h"

namespace xlad::sharding {

// A collective moves shards of manual axes; along the other axes its dimensions pass through, except those that it
// splits or joins.
OpRule CollectiveRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  if (rule.operand_count() == 0 || rule.operand_count() != rule.result_count()) return {};
  for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) {
    const Dims from = rule.operand_dims(leaf), to = rule.result_dims(leaf);
    if (from.size() != to.size()) return {};
    for (size_t d = 0; d < to.size(); ++d) {
      bool moved = from[d] != to[d];
      for (const int64_t named : instruction.dimensions()) moved |= named == static_cast<int64_t>(d);
      const int factor =
          rule.Add(std::max(from[d], to[d]), moved ? FactorKind::kNeedReplication : FactorKind::kPassThrough);
      rule.Operand(leaf, static_cast<int64_t>(d), factor);
      rule.Result(leaf, static_cast<int64_t>(d), factor);
    }
  }
  return rule.Finish();
}

// Known targets only; anything else must see whole arrays and passes no sharding on.
OpRule CustomCallRule(const hlo::Instruction& instruction) {
  const std::string& target = instruction.attributes().custom_call_target;
  for (const char* through : {"MoveToHost", "MoveToDevice", "annotate_device_placement", "X64Combine", "X64SplitLow",
                              "X64SplitHigh", "mhlo.erf", "mhlo.asin", "mhlo.acos", "mhlo.sinh", "mhlo.cosh",
                              "mhlo.asinh", "mhlo.acosh", "mhlo.atanh"}) {
    if (target == through && instruction.shape().is_array()) return ElementwiseRule(instruction);
  }
  if ((target == "TopK" || target == "mhlo.topk") && instruction.operand_count() == 1 &&
      !instruction.operand(0)->shape().dims().empty()) {
    return TopkRule(instruction);
  }
  return {};
}

}  // namespace xlad::sharding
