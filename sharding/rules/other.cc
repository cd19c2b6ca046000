// Op rules of collectives that stand in the user's own program, and of custom calls.
#include <algorithm>

#include "sharding/rules/rules.h"

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

namespace {

// Between a whole array and one manual shard of it: a dimension that is split manually has the manual part as a factor
// that only the whole array has.
OpRule ManualBorderRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  if (rule.operand_count() != 1 || rule.result_count() != 1) return {};
  const Dims from = rule.operand_dims(0), to = rule.result_dims(0);
  if (from.size() != to.size()) return {};
  for (size_t d = 0; d < from.size(); ++d) {
    const int64_t whole = std::max(from[d], to[d]), local = std::min(from[d], to[d]);
    const int64_t dim = d;
    if (whole > local && local > 0 && whole % local == 0) {
      const int manual = rule.Add(whole / local, FactorKind::kPassThrough, true);
      if (from[d] > to[d])
        rule.Operand(0, dim, manual);
      else
        rule.Result(0, dim, manual);
    }
    const int factor = rule.Add(local);
    rule.Operand(0, dim, factor);
    rule.Result(0, dim, factor);
  }
  return rule.Finish();
}

}  // namespace

// Known targets only; anything else must see whole arrays and passes no sharding on.
OpRule CustomCallRule(const hlo::Instruction& instruction) {
  const std::string& target = instruction.attributes().custom_call_target;
  for (const char* through :
       {"MoveToHost", "MoveToDevice", "annotate_device_placement", "X64Combine", "X64SplitLow", "X64SplitHigh",
        "mhlo.erf", "mhlo.asin", "mhlo.acos", "mhlo.sinh", "mhlo.cosh", "mhlo.asinh", "mhlo.acosh", "mhlo.atanh"}) {
    if (target == through && instruction.shape().is_array()) return ElementwiseRule(instruction);
  }
  if (target == "xla.sdy.GlobalToLocalShape" || target == "xla.sdy.LocalToGlobalShape") {
    return ManualBorderRule(instruction);
  }
  if ((target == "TopK" || target == "mhlo.topk") && instruction.operand_count() == 1 &&
      !instruction.operand(0)->shape().dims().empty()) {
    return TopkRule(instruction);
  }
  return {};
}

}  // namespace xlad::sharding
