#include "hlo/eval/interpreter.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "hlo/eval/reducer.h"

namespace xlad::hlo::eval {
namespace {

constexpr int64_t kMaxDepth = 1000;  // How deep calls of computations may be nested.

std::unique_ptr<ComputationPlan> MakePlan(const Computation& computation) {
  auto plan = std::make_unique<ComputationPlan>();
  absl::flat_hash_map<const Instruction*, int64_t> slots;
  for (const auto& instruction : computation.instructions()) {
    ComputationPlan::Entry planned;
    planned.instruction = instruction.get();
    planned.function = FindEvalFunction(instruction->opcode());
    planned.work = WorkOf(*instruction);
    for (const Instruction* operand : instruction->operands()) planned.operands.push_back(slots.at(operand));
    planned.last_uses.resize(planned.operands.size(), false);
    slots[instruction.get()] = std::ssize(plan->entries);
    plan->entries.push_back(std::move(planned));
  }
  plan->root = slots.at(computation.root());
  plan->entries[plan->root].is_used = true;
  std::vector<bool> read_later(plan->entries.size(), false);
  read_later[plan->root] = true;
  for (size_t s = plan->entries.size(); s-- > 0;) {
    ComputationPlan::Entry& planned = plan->entries[s];
    for (size_t i = planned.operands.size(); i-- > 0;) {
      const int64_t slot = planned.operands[i];
      planned.last_uses[i] = !read_later[slot];
      read_later[slot] = true;
      plan->entries[slot].is_used = true;
    }
  }
  return plan;
}

}  // namespace

std::string PlaceOf(const Instruction& instruction) {
  const std::string source = instruction.parent() != nullptr && instruction.parent()->parent() != nullptr
                                 ? instruction.parent()->parent()->SourceOf(instruction)
                                 : "";
  return absl::StrCat(instruction.line() > 0 ? absl::StrCat(instruction.line(), ":", instruction.column(), ": ") : "",
                      "%", instruction.name(), source.empty() ? "" : absl::StrCat(" (", source, ")"));
}

const ComputationPlan& EvaluationState::PlanOf(const Computation& computation) {
  std::unique_ptr<ComputationPlan>& plan = plans_[&computation];
  if (plan == nullptr) plan = MakePlan(computation);
  return *plan;
}

absl::Status Interpreter::Start(const Computation& entry, std::vector<Value> arguments) {
  return Push(entry, Role::kCall, std::move(arguments));
}

absl::Status Interpreter::Push(const Computation& computation, Role role, std::vector<Value> arguments) {
  if (std::ssize(frames_) >= kMaxDepth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("found a call of computation ", computation.name(), " inside ", kMaxDepth,
                     " other calls, expected less nesting"));
  }
  Frame frame;
  frame.plan = &state_->PlanOf(computation);
  frame.role = role;
  frame.slots.resize(frame.plan->entries.size());
  frame.arguments = std::move(arguments);
  frames_.push_back(std::move(frame));
  return absl::OkStatus();
}

absl::Status Interpreter::Run() {
  while (!done() && waiting_at_ == nullptr) XLAD_RETURN_IF_ERROR(RunNext());
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::Call(const Computation& computation, std::vector<Value> arguments) {
  const size_t depth = frames_.size();
  // The parameters of a reducer may have a wider type than the arguments.
  for (size_t p = 0; p < arguments.size() && p < computation.parameters().size(); ++p) {
    const Shape& parameter = computation.parameters()[p]->shape();
    if (arguments[p].is_tuple() || !parameter.is_array() || arguments[p].type() == parameter.type()) continue;
    arguments[p] = ConvertTo(arguments[p], parameter.type());
  }
  XLAD_RETURN_IF_ERROR(Push(computation, Role::kCall, std::move(arguments)));
  ++calls_;
  // Stops before the frame of the callee returns, because this function itself returns the result to its caller.
  while (frames_.size() > depth + 1 || frames_.back().next < std::ssize(frames_.back().plan->entries)) {
    XLAD_RETURN_IF_ERROR(RunNext());
  }
  --calls_;
  Value result = std::move(frames_.back().slots[frames_.back().plan->root]);
  frames_.pop_back();
  return result;
}

absl::Status Interpreter::RunNext() {
  Frame& frame = frames_.back();
  if (frame.next == std::ssize(frame.plan->entries)) return Return();
  if (--state_->instructions_left < 0) {
    return absl::ResourceExhaustedError(
        "the program runs more instructions than the limit EvaluateLimits.instructions");
  }
  const ComputationPlan::Entry& planned = frame.plan->entries[frame.next];
  state_->work_left -= planned.work;
  if (state_->work_left < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(PlaceOf(*planned.instruction), ": needs about ", planned.work,
                     " element operations; with them, the program exceeds the limit EvaluateLimits.element_steps"));
  }
  const absl::Status status = RunInstruction(frame, planned);
  // The message may already name an instruction inside a called computation, which is the more precise place.
  if (status.ok() || absl::StrContains(status.message(), "%")) return status;
  return Annotate(status, PlaceOf(*planned.instruction));
}

void Interpreter::Store(Frame& frame, Value value) {
  const ComputationPlan::Entry& planned = frame.plan->entries[frame.next];
  if (planned.is_used) frame.slots[frame.next] = std::move(value);
  ++frame.next;
}

absl::Status Interpreter::RunInstruction(Frame& frame, const ComputationPlan::Entry& planned) {
  const Instruction& instruction = *planned.instruction;
  if (instruction.opcode() == Opcode::kParameter) {
    Store(frame, std::move(frame.arguments[instruction.number()]));
    return absl::OkStatus();
  }
  if (instruction.opcode() == Opcode::kConstant) {
    const int64_t missing = Value::MissingBytes(*instruction.literal());
    XLAD_RETURN_IF_ERROR(state_->meter.CheckLimit(missing));
    Value constant = Value::FromShared(instruction.literal());
    if (missing > 0) constant.Charge(&state_->meter);
    Store(frame, std::move(constant));
    return absl::OkStatus();
  }
  std::vector<Value> operands;
  operands.reserve(planned.operands.size());
  for (size_t i = 0; i < planned.operands.size(); ++i) {
    Value& slot = frame.slots[planned.operands[i]];
    operands.push_back(planned.last_uses[i] ? std::move(slot) : slot);
  }
  if (planned.function == nullptr) return RunControl(frame, planned, std::move(operands));
  XLAD_RETURN_IF_ERROR(state_->meter.CheckLimit(instruction.shape().bytes()));
  XLAD_ASSIGN_OR_RETURN(Value result, planned.function({instruction, absl::MakeSpan(operands), *this}));
  result.Charge(&state_->meter);
  Store(frame, std::move(result));
  return absl::OkStatus();
}

absl::Status Interpreter::Return() {
  Frame callee = std::move(frames_.back());
  frames_.pop_back();
  Value result = std::move(callee.slots[callee.plan->root]);
  if (frames_.empty()) {
    result_ = std::move(result);
    return absl::OkStatus();
  }
  return Deliver(frames_.back(), callee.role, std::move(result));
}

void Interpreter::Resume(Value result) {
  waiting_at_ = nullptr;
  waiting_operands_.clear();
  result.Charge(&state_->meter);
  Store(frames_.back(), std::move(result));
}

}  // namespace xlad::hlo::eval
