// custom-call targets that are evaluated without their library: annotations, which are identities, and LAPACK routines.
#include "absl/strings/str_join.h"
#include "hlo/attribute_keys.h"
#include "hlo/eval/lapack.h"
#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {
namespace {

// Annotations, which do not change the global value.
constexpr absl::string_view kIdentities[] = {
    kShardingCall,
    kResultShardingCall,
    kPropagationBarrierCall,
    kEnterManualCall,
    kLeaveManualCall,
    kEnterManualTilesCall,
    kLeaveManualTilesCall,
    "annotate_device_placement",
    "MoveToHost",
    "MoveToDevice",
};

absl::StatusOr<Value> EvalCustomCall(const Operation& operation) {
  const std::string& target = operation.attributes().custom_call_target;
  if (target == kShardingGroupCall) {
    if (Value().HasShape(operation.shape())) return Value();
    return absl::InvalidArgumentError(
        absl::StrCat("found a sharding group of shape ", operation.shape().ToString(false), ", expected ()"));
  }
  if (const LapackFunction* function = FindLapackFunction(target); function != nullptr) {
    return EvalLapack(operation, *function);
  }
  for (const absl::string_view identity : kIdentities) {
    if (target != identity || operation.operands.empty()) continue;
    if (operation.operands.size() == 1) {
      if (operation.operand(0).HasShape(operation.shape())) return operation.operand(0);
    } else {
      Value tuple = Value::Tuple(std::vector<Value>(operation.operands.begin(), operation.operands.end()));
      if (tuple.HasShape(operation.shape())) return tuple;
    }
    return absl::UnimplementedError(
        absl::StrCat("custom-call ", target, " with result ", operation.shape().ToString(false),
                     " is not evaluated because it changes the shape; to evaluate a manual region, partition the ",
                     "program and run one program per device"));
  }
  return absl::UnimplementedError(absl::StrCat("found custom-call target \"", target, "\", expected one of ",
                                               absl::StrJoin(kIdentities, ", "), ", ", kShardingGroupCall, ", ",
                                               LapackTargets()));
}

constexpr EvalRow kCustomCallRows[] = {{Opcode::kCustomCall, EvalCustomCall}};

}  // namespace

absl::Span<const EvalRow> CustomCallRows() { return kCustomCallRows; }

}  // namespace xlad::hlo::eval
