// Rules of the collectives that a user's program contains, and of custom calls.
#include <algorithm>
#include <vector>

#include "base/containers.h"
#include "hlo/analysis/lapack.h"
#include "hlo/attribute_keys.h"
#include "sharding/rules/rules.h"
#include "tensor/indices.h"

namespace xlad::sharding {
namespace {

// Collectives in a user's program are in manual computations and move shards of manual axes. Other axes pass through,
// except on the dimensions that the collective splits or joins.
OpRule CollectiveRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  if (rule.operand_count() == 0 || rule.operand_count() != rule.result_count()) return {};
  for (int64_t leaf = 0; leaf < rule.result_count(); ++leaf) {
    const Dims from = rule.operand_dims(leaf), to = rule.result_dims(leaf);
    if (from.size() != to.size()) return {};
    for (const int64_t d : tensor::Indices(to)) {
      const bool moved = from[d] != to[d] || Contains(instruction.dimensions(), d);
      const int factor =
          rule.Add(std::max(from[d], to[d]), moved ? FactorKind::kNeedReplication : FactorKind::kPassThrough);
      rule.Operand(leaf, d, factor);
      rule.Result(leaf, d, factor);
    }
  }
  return rule.Finish();
}

// Rows move between the shards of manual axes. The number of rows is known only at run time. Other dimensions pass
// through.
OpRule RaggedAllToAllRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  for (int64_t operand = 0; operand < rule.operand_count(); ++operand) {
    const Dims dims = rule.operand_dims(operand);
    if (operand == 1) continue;
    rule.Operand(operand, 0, rule.Add(dims[0], FactorKind::kNeedReplication));
  }
  for (const int64_t d : tensor::Indices(rule.result_dims(0))) {
    const FactorKind kind = d == 0 ? FactorKind::kNeedReplication : FactorKind::kPassThrough;
    const int factor = rule.Add(rule.result_dims(0)[d], kind);
    if (d > 0) rule.Operand(0, d, factor);
    rule.Operand(1, d, factor);
    rule.Result(0, d, factor);
  }
  return rule.Finish();
}

// The border between an array and its manual shards. In the array, a dimension that is split manually has two factors:
// the manual shards and the positions in a shard. In the shard it has only the second factor.
OpRule ManualBorderRule(const hlo::Instruction& instruction) {
  RuleBuilder rule(instruction);
  if (rule.operand_count() != 1 || rule.result_count() != 1) return {};
  const Dims from = rule.operand_dims(0), to = rule.result_dims(0);
  if (from.size() != to.size()) return {};
  for (const int64_t d : tensor::Indices(from)) {
    const int64_t global = std::max(from[d], to[d]), local = std::min(from[d], to[d]);
    if (global > local && local > 0 && global % local == 0) {
      const int manual = rule.Add(global / local, FactorKind::kPassThrough, /*blocked=*/true);
      if (from[d] > to[d]) {
        rule.Operand(0, d, manual);
      } else {
        rule.Result(0, d, manual);
      }
    }
    const int factor = rule.Add(local);
    rule.Operand(0, d, factor);
    rule.Result(0, d, factor);
  }
  return rule.Finish();
}

// Custom calls that are elementwise functions or moves between memories.
constexpr const char* kElementwiseCalls[] = {
    "MoveToHost", "MoveToDevice", "annotate_device_placement", "X64Combine", "X64SplitLow", "X64SplitHigh",
    "mhlo.erf",   "mhlo.asin",    "mhlo.acos",                 "mhlo.sinh",  "mhlo.cosh",   "mhlo.asinh",
    "mhlo.acosh", "mhlo.atanh"};

// A LAPACK call: only the dimensions of the batch can be split.
OpRule LapackRule(const hlo::Instruction& instruction) {
  const absl::StatusOr<tensor::LapackCall> call = hlo::LapackCallOf(instruction);
  if (!call.ok()) return {};
  RuleBuilder rule(instruction);
  for (const int64_t d : tensor::Indices(call->batch)) {
    const int factor = rule.Add(call->batch[d]);
    for (int64_t i = 0; i < rule.operand_count(); ++i) rule.Operand(i, d, factor);
    for (int64_t i = 0; i < rule.result_count(); ++i) rule.Result(i, d, factor);
  }
  return rule.Finish();
}

// Whether all operands and results are arrays, with dimensions that may differ only in the last `free` ones. The shapes
// of a custom call are what the user wrote: they need not fit its target.
bool AgreeExceptLast(const hlo::Instruction& instruction, int64_t free) {
  std::vector<const hlo::Shape*> shapes;
  for (const hlo::Instruction* operand : instruction.operands()) shapes.push_back(&operand->shape());
  if (!instruction.shape().is_tuple()) shapes.push_back(&instruction.shape());
  for (const hlo::Shape& element : instruction.shape().tuple()) shapes.push_back(&element);
  if (std::ssize(shapes) == instruction.operand_count()) return false;
  const Dims& dims = shapes[0]->dims();
  return std::all_of(shapes.begin(), shapes.end(), [&](const hlo::Shape* shape) {
    return shape->is_array() && shape->dims().size() == dims.size() && std::ssize(dims) >= free &&
           std::equal(dims.begin(), dims.end() - free, shape->dims().begin());
  });
}

// A custom call with an unknown target gets replicated operands, and nothing propagates through it.
OpRule CustomCallRule(const hlo::Instruction& instruction) {
  const std::string& target = instruction.attributes().custom_call_target;
  if (instruction.shape().is_array() && Contains(kElementwiseCalls, target)) {
    return AgreeExceptLast(instruction, 0) ? ElementwiseRule(instruction) : OpRule();
  }
  if (hlo::IsManualBorder(instruction)) return ManualBorderRule(instruction);
  if ((target == "TopK" || target == "mhlo.topk") && instruction.operand_count() == 1) {
    return AgreeExceptLast(instruction, 1) ? TopkRule(instruction) : OpRule();
  }
  if (hlo::IsLapackCall(instruction)) return LapackRule(instruction);
  return {};
}

constexpr RuleRow kOtherRules[] = {
    {hlo::Opcode::kCustomCall, CustomCallRule},          {hlo::Opcode::kAllReduce, CollectiveRule},
    {hlo::Opcode::kReduceScatter, CollectiveRule},       {hlo::Opcode::kCollectiveReduce, CollectiveRule},
    {hlo::Opcode::kAllGather, CollectiveRule},           {hlo::Opcode::kAllToAll, CollectiveRule},
    {hlo::Opcode::kRaggedAllToAll, RaggedAllToAllRule},  {hlo::Opcode::kCollectivePermute, CollectiveRule},
    {hlo::Opcode::kCollectiveBroadcast, CollectiveRule},
};

}  // namespace

absl::Span<const RuleRow> OtherRules() { return kOtherRules; }

}  // namespace xlad::sharding
