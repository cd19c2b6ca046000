#include "hlo/eval/interpreter.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "hlo/eval/reducer.h"

namespace xlad::hlo::eval {
namespace {

constexpr size_t kMaxDepth = 1000;  // Of called computations.

std::unique_ptr<Plan> MakePlan(const Computation& computation) {
  auto plan = std::make_unique<Plan>();
  absl::flat_hash_map<const Instruction*, int> slots;
  for (const auto& instruction : computation.instructions()) {
    Plan::Step step{instruction.get(), FindEvalFunction(instruction->opcode()), {}, {}, false, WorkOf(*instruction)};
    for (const Instruction* operand : instruction->operands()) step.operands.push_back(slots.at(operand));
    step.last_uses.resize(step.operands.size(), false);
    if (instruction.get() == computation.root()) plan->root = plan->steps.size();
    slots[instruction.get()] = static_cast<int>(plan->steps.size());
    plan->steps.push_back(std::move(step));
  }
  plan->steps[plan->root].kept = true;
  std::vector<bool> read_later(plan->steps.size(), false);
  read_later[plan->root] = true;
  for (size_t s = plan->steps.size(); s-- > 0;) {
    Plan::Step& step = plan->steps[s];
    for (size_t i = step.operands.size(); i-- > 0;) {
      const size_t slot = step.operands[i];
      step.last_uses[i] = !read_later[slot];
      read_later[slot] = true;
      plan->steps[slot].kept = true;
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

const Plan& Program::PlanOf(const Computation& computation) {
  std::unique_ptr<Plan>& plan = plans_[&computation];
  if (plan == nullptr) plan = MakePlan(computation);
  return *plan;
}

absl::Status Interpreter::Start(const Computation& entry, std::vector<Value> arguments) {
  return Push(entry, Role::kCall, std::move(arguments));
}

absl::Status Interpreter::Push(const Computation& computation, Role role, std::vector<Value> arguments) {
  if (frames_.size() >= kMaxDepth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("computation ", computation.name(), " is called at depth ", kMaxDepth, ", expected less"));
  }
  Frame frame;
  frame.plan = &program_->PlanOf(computation);
  frame.role = role;
  frame.slots.resize(frame.plan->steps.size());
  frame.arguments = std::move(arguments);
  frames_.push_back(std::move(frame));
  return absl::OkStatus();
}

absl::Status Interpreter::Run() {
  while (!done() && waiting_at_ == nullptr) XLAD_RETURN_IF_ERROR(StepOnce());
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::Call(const Computation& computation, std::vector<Value> arguments) {
  const size_t depth = frames_.size();
  // A reducer may compute in a wider type than the values it is given.
  for (size_t p = 0; p < arguments.size() && p < computation.parameters().size(); ++p) {
    const Shape& parameter = computation.parameters()[p]->shape();
    if (arguments[p].is_tuple() || !parameter.is_array() || arguments[p].type() == parameter.type()) continue;
    arguments[p] = ConvertTo(arguments[p], parameter.type());
  }
  XLAD_RETURN_IF_ERROR(Push(computation, Role::kCall, std::move(arguments)));
  ++calls_;
  // The callee's own last step leaves its result in the frame, not in the caller's slots.
  while (frames_.size() > depth + 1 || frames_.back().next < frames_.back().plan->steps.size()) {
    XLAD_RETURN_IF_ERROR(StepOnce());
  }
  --calls_;
  Value result = std::move(frames_.back().slots[frames_.back().plan->root]);
  frames_.pop_back();
  return result;
}

absl::Status Interpreter::StepOnce() {
  Frame& frame = frames_.back();
  if (frame.next == frame.plan->steps.size()) return Return();
  if (--program_->instructions_left < 0) {
    return absl::ResourceExhaustedError(
        "the program runs more instructions than the evaluation's limit (EvaluateLimits.instructions)");
  }
  const Plan::Step& step = frame.plan->steps[frame.next];
  program_->work_left -= step.work;
  if (program_->work_left < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(PlaceOf(*step.instruction), ": the program's work, about ", step.work,
                     " element steps here, is beyond the evaluation's limit (EvaluateLimits.element_steps)"));
  }
  const absl::Status status = RunStep(frame, step);
  // Where an instruction inside a called computation failed, the innermost place is the one that helps.
  if (status.ok() || absl::StrContains(status.message(), "%")) return status;
  return Annotate(status, PlaceOf(*step.instruction));
}

void Interpreter::Store(Frame& frame, Value value) {
  const Plan::Step& step = frame.plan->steps[frame.next];
  if (step.kept) frame.slots[frame.next] = std::move(value);
  ++frame.next;
}

absl::Status Interpreter::RunStep(Frame& frame, const Plan::Step& step) {
  const Instruction& instruction = *step.instruction;
  if (instruction.opcode() == Opcode::kParameter) {
    Store(frame, std::move(frame.arguments[instruction.number()]));
    return absl::OkStatus();
  }
  if (instruction.opcode() == Opcode::kConstant) {
    const int64_t missing = Value::MissingBytes(*instruction.literal());
    XLAD_RETURN_IF_ERROR(program_->meter.CheckRoom(missing));
    Value constant = Value::FromShared(instruction.literal());
    if (missing > 0) constant.Charge(&program_->meter);
    Store(frame, std::move(constant));
    return absl::OkStatus();
  }
  std::vector<Value> operands;
  operands.reserve(step.operands.size());
  for (size_t i = 0; i < step.operands.size(); ++i) {
    Value& slot = frame.slots[step.operands[i]];
    operands.push_back(step.last_uses[i] ? std::move(slot) : slot);
  }
  if (step.function == nullptr) return RunControl(frame, step, std::move(operands));
  XLAD_RETURN_IF_ERROR(program_->meter.CheckRoom(instruction.shape().bytes()));
  XLAD_ASSIGN_OR_RETURN(Value result, step.function({instruction, absl::MakeSpan(operands), *this}));
  result.Charge(&program_->meter);
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
  result.Charge(&program_->meter);
  Store(frames_.back(), std::move(result));
}

}  // namespace xlad::hlo::eval
