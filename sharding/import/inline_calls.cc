#include "sharding/import/inline_calls.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/attribute_keys.h"
#include "hlo/verify/verifier.h"
#include "sharding/import/annotations.h"

namespace xlad::sharding {
namespace {

constexpr int64_t kMaxInstructions = 4'000'000;
constexpr int64_t kMaxNesting = 1'000;

// A fusion is equivalent to a call of its computation. Its kind says only how another compiler would emit it.
bool IsCallOrFusion(const hlo::Instruction& instruction) {
  return instruction.opcode() == hlo::Opcode::kCall || instruction.opcode() == hlo::Opcode::kFusion;
}

// The number of instructions that a computation has after all computations that it calls are inlined or cloned, and how
// deep its calls and loops nest.
struct Extent {
  int64_t instructions = 0, nesting = 0;
};

absl::Status CheckExtent(const hlo::Module& module) {
  absl::flat_hash_map<const hlo::Computation*, Extent> extents;
  for (const auto& computation : module.computations()) {
    Extent extent;
    for (const auto& instruction : computation->instructions()) {
      ++extent.instructions;
      if (!IsCallOrFusion(*instruction) && !IsControlFlow(*instruction)) continue;
      for (const hlo::Computation* callee : instruction->called()) {
        const Extent& inner = extents[callee];  // The module's computations are in order, callees first.
        extent.instructions = std::min(extent.instructions + inner.instructions, kMaxInstructions + 1);
        extent.nesting = std::max(extent.nesting, inner.nesting + 1);
      }
    }
    extents[computation.get()] = extent;
  }
  const Extent& entry = extents[module.entry()];
  if (entry.instructions > kMaxInstructions || entry.nesting > kMaxNesting) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found calls and loops nested ", entry.nesting, " deep and at least ", entry.instructions,
        " instructions once calls are inlined, expected at most ", kMaxNesting, " and ", kMaxInstructions));
  }
  return absl::OkStatus();
}

bool HasSource(const hlo::Metadata& metadata) { return metadata.stack_frame_id != 0 || !metadata.source_file.empty(); }

// If the instruction has no source line, copies that of the call, so that every message can name a source line.
void InheritSource(const hlo::Metadata& call, hlo::Metadata* metadata) {
  if (HasSource(*metadata)) return;
  metadata->stack_frame_id = call.stack_frame_id;
  metadata->source_file = call.source_file;
  metadata->source_line = call.source_line;
  metadata->source_end_line = call.source_end_line;
  metadata->source_column = call.source_column;
  metadata->source_end_column = call.source_end_column;
  if (metadata->op_name.empty()) metadata->op_name = call.op_name;
}

// If `call` is the body of a manual computation, returns a border of this computation: the custom call that produces an
// operand of `call`, or the custom call that uses its result. Otherwise returns null.
const hlo::Instruction* ManualBorder(const hlo::Instruction& call) {
  for (const hlo::Instruction* operand : call.operands()) {
    if (operand->opcode() == hlo::Opcode::kGetTupleElement) operand = operand->operand(0);
    if (IsCustomCall(*operand, hlo::kEnterManualCall)) return operand;
  }
  for (const hlo::Instruction* user : call.users()) {
    const bool element = user->opcode() == hlo::Opcode::kGetTupleElement && !user->users().empty();
    if (element) user = user->users()[0];
    if (IsCustomCall(*user, hlo::kLeaveManualCall)) return user;
  }
  return nullptr;
}

// The manual axes, "dp,sp", if the call is the body of a manual computation; otherwise an empty string.
absl::StatusOr<std::string> ManualAxes(const hlo::Instruction& call) {
  const hlo::Instruction* border = ManualBorder(call);
  if (border == nullptr) return std::string();
  const std::string* text = hlo::FindAttribute(*border, hlo::kSdyManualAxesKey);
  if (text == nullptr) {
    return AtInstruction(
        absl::InvalidArgumentError(absl::StrCat("found no ", hlo::kSdyManualAxesKey, ", expected the manual axes")),
        *border);
  }
  auto axes = ParseSdyAxes(*text);
  XLAD_RETURN_IF_ERROR(AtInstruction(axes.status(), *border));
  return absl::StrJoin(*axes, ",", [](std::string* out, const SdyAxis& axis) { out->append(axis.name); });
}

void AddManualAxes(const std::string& axes, hlo::Instruction* instruction) {
  std::string& all = instruction->mutable_frontend_attributes()[hlo::kManualAxesKey];
  all = all.empty() ? axes : absl::StrCat(axes, ",", all);
}

// Clones the callee's instructions into the caller and returns the clone of its root.
absl::StatusOr<hlo::Instruction*> CloneBody(const hlo::Instruction& call, hlo::Computation* caller) {
  XLAD_ASSIGN_OR_RETURN(const std::string manual, ManualAxes(call));
  const hlo::Computation& callee = *call.called()[0];
  absl::flat_hash_map<const hlo::Instruction*, hlo::Instruction*> clones;
  for (const auto& instruction : callee.instructions()) {
    if (instruction->opcode() == hlo::Opcode::kParameter) {
      clones[instruction.get()] = call.operand(instruction->number());
      continue;
    }
    std::unique_ptr<hlo::Instruction> clone = instruction->CloneWithoutOperands();
    clone->set_name(instruction->name());
    InheritSource(call.metadata(), &clone->mutable_metadata());
    if (!manual.empty()) AddManualAxes(manual, clone.get());
    std::vector<hlo::Instruction*> operands;
    for (const hlo::Instruction* operand : instruction->operands()) operands.push_back(clones.at(operand));
    clones[instruction.get()] = caller->Add(std::move(clone), operands);
  }
  return clones.at(callee.root());
}

// If `call` is a fusion with an annotation, returns a copy of `root` with the annotation and the name of the fusion.
// Otherwise returns `root`.
absl::StatusOr<hlo::Instruction*> WithAnnotation(hlo::Instruction* call, hlo::Instruction* root) {
  const std::string* text = hlo::FindAttribute(*call, hlo::kShardingKey);
  if (call->opcode() != hlo::Opcode::kFusion || (text == nullptr && call->sharding() == nullptr)) return root;
  if (!call->shape().is_array()) {
    return AtInstruction(absl::UnimplementedError(
                             "found a sharding of a fusion with several results, expected shardings of its elements"),
                         *call);
  }
  auto copy = std::make_unique<hlo::Instruction>(hlo::Opcode::kCopy, call->shape());
  copy->mutable_metadata() = call->metadata();
  copy->set_place(call->line(), call->column());
  if (text != nullptr) copy->mutable_frontend_attributes()[hlo::kShardingKey] = *text;
  if (call->sharding() != nullptr) copy->set_sharding(std::make_unique<hlo::OpSharding>(*call->sharding()));
  hlo::Instruction* added = call->parent()->Add(std::move(copy), {root});
  std::string name = call->name();
  call->set_name(added->name());
  added->set_name(std::move(name));
  return added;
}

absl::Status InlineInto(hlo::Computation* caller) {
  std::vector<hlo::Instruction*> calls;
  for (const auto& instruction : caller->instructions()) {
    if (IsCallOrFusion(*instruction) && !instruction->called().empty()) {
      calls.push_back(instruction.get());
    }
  }
  if (calls.empty()) return absl::OkStatus();
  for (hlo::Instruction* call : calls) {
    XLAD_ASSIGN_OR_RETURN(hlo::Instruction * root, CloneBody(*call, caller));
    XLAD_ASSIGN_OR_RETURN(root, WithAnnotation(call, root));
    call->ReplaceAllUsesWith(root);
  }
  // A call without a callee has no side effects, so RemoveDead removes it if it is unused.
  for (hlo::Instruction* call : calls) call->mutable_called().clear();
  caller->SortTopologically();
  ForwardTupleElements(caller);
  caller->RemoveDead();
  calls.clear();
  for (const auto& instruction : caller->instructions()) {
    if (IsCallOrFusion(*instruction) && instruction->called().empty()) {
      calls.push_back(instruction.get());  // RemoveDead keeps a call that has control dependencies.
    }
  }
  for (hlo::Instruction* call : calls) caller->Remove(call);
  return absl::OkStatus();
}

// Makes sure that control-flow instructions in `caller` share no called computation: clones a computation that is
// already in `claimed`, and adds the clone or the computation itself to `claimed`.
void MakeUnique(hlo::Module* module, hlo::Computation* caller, absl::flat_hash_set<const hlo::Computation*>* claimed) {
  for (const auto& instruction : caller->instructions()) {
    if (!IsControlFlow(*instruction)) continue;
    for (hlo::Computation*& callee : instruction->mutable_called()) {
      if (!claimed->insert(callee).second) {
        callee = module->CloneComputation(*callee, callee->name());
        claimed->insert(callee);
      }
      MakeUnique(module, callee, claimed);
    }
  }
}

void CollectFlow(hlo::Computation* computation, std::vector<hlo::Computation*>* flow) {
  flow->push_back(computation);
  for (const auto& instruction : computation->instructions()) {
    if (!IsControlFlow(*instruction)) continue;
    for (hlo::Computation* callee : instruction->called()) CollectFlow(callee, flow);
  }
}

bool IsIdentityReshape(const hlo::Instruction& instruction) {
  return instruction.opcode() == hlo::Opcode::kReshape && instruction.operand_count() == 1 &&
         instruction.shape().is_array() && instruction.shape().SameIgnoringLayout(instruction.operand(0)->shape());
}

}  // namespace

bool IsControlFlow(const hlo::Instruction& instruction) {
  return instruction.opcode() == hlo::Opcode::kWhile || instruction.opcode() == hlo::Opcode::kConditional;
}

void ForwardTupleElements(hlo::Computation* computation) {
  for (const auto& instruction : computation->instructions()) {
    hlo::Instruction* from = nullptr;
    if (instruction->opcode() == hlo::Opcode::kGetTupleElement &&
        instruction->operand(0)->opcode() == hlo::Opcode::kTuple) {
      from = instruction->operand(0)->operand(instruction->number());
    } else if (IsIdentityReshape(*instruction)) {
      from = instruction->operand(0);
    }
    if (from != nullptr) instruction->ReplaceAllUsesWith(from);
  }
}

absl::Status InlineCalls(hlo::Module* module) {
  XLAD_RETURN_IF_ERROR(CheckExtent(*module));
  module->RemoveUnusedComputations();
  for (const auto& computation : module->computations()) XLAD_RETURN_IF_ERROR(InlineInto(computation.get()));
  module->RemoveUnusedComputations();
  absl::flat_hash_set<const hlo::Computation*> claimed = {module->entry()};
  MakeUnique(module, module->entry(), &claimed);
  for (hlo::Computation* computation : FlowComputations(*module)) {
    ForwardTupleElements(computation);
    computation->RemoveDead();
  }
  module->RemoveUnusedComputations();
  module->SortComputations();  // Clones were added at the end.
  return absl::OkStatus();
}

std::vector<hlo::Computation*> FlowComputations(const hlo::Module& module) {
  std::vector<hlo::Computation*> flow;
  CollectFlow(module.entry(), &flow);
  return flow;
}

}  // namespace xlad::sharding
