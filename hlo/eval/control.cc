// Instructions that the interpreter runs itself: calls, loops, branches, ids, async pairs, send, recv, and waiting at
// collectives.
#include "hlo/eval/interpreter.h"
#include "hlo/eval/strided.h"
#include "hlo/infer/infer.h"

namespace xlad::hlo::eval {
namespace {

Value ScalarU32(int64_t value) {
  return Value(Array::FromValues(ElementType::kU32, {}, std::vector<uint32_t>(1, value)));
}

// The result of async-start or async-update: the operands, the result of the callee, and contexts, which are zeros.
Value AsyncResult(const Shape& shape, std::vector<Value> operands, Value result) {
  std::vector<Value> elements = {Value::Tuple(std::move(operands)), std::move(result)};
  for (size_t i = 2; i < shape.tuple().size(); ++i) elements.push_back(Value::Zeros(shape.tuple()[i]));
  return Value::Tuple(std::move(elements));
}

bool IsEmptyTuple(const Shape& shape) { return shape.is_tuple() && shape.tuple().empty(); }

// Whether the value has exactly this shape. The state of an async op that a loop carries may have another shape.
bool HasExactShape(const Value& value, const Shape& shape) {
  if (!shape.is_tuple()) return !value.is_tuple() && (!shape.is_array() || value.shape() == shape.array());
  if (!value.is_tuple() || value.tuple().size() != shape.tuple().size()) return false;
  for (const int64_t e : tensor::Indices(shape.tuple())) {
    if (!HasExactShape(value.tuple()[e], shape.tuple()[e])) return false;
  }
  return true;
}

}  // namespace

absl::Status Interpreter::RunControl(Frame& frame, const ComputationPlan::Entry& planned, std::vector<Value> operands) {
  const Instruction& instruction = *planned.instruction;
  switch (instruction.opcode()) {
    case Opcode::kCall:
    case Opcode::kFusion:
      return Push(*instruction.called()[0], Role::kCall, std::move(operands));
    case Opcode::kWhile:
      frame.saved = std::move(operands);
      return Push(*instruction.called()[0], Role::kCondition, frame.saved);
    case Opcode::kConditional:
      return RunConditional(instruction, std::move(operands));
    case Opcode::kAsyncStart:
    case Opcode::kAsyncUpdate:
      return RunAsync(frame, instruction, std::move(operands));
    case Opcode::kAsyncDone:
      if (!HasExactShape(operands[0].tuple()[1], instruction.shape())) {
        return absl::UnimplementedError(
            "async-done is not evaluated if the async op was started in another computation and its state has no "
            "result");
      }
      [[fallthrough]];
    case Opcode::kAllGatherDone:
    case Opcode::kCollectivePermuteDone: {
      Value result = operands[0].tuple()[1];
      Store(frame, std::move(result));
      return absl::OkStatus();
    }
    case Opcode::kAllReduceDone:
      Store(frame, std::move(operands[0]));
      return absl::OkStatus();
    case Opcode::kSend: {
      const int64_t device = replica_ * state_->grid.partitions + partition_;
      XLAD_RETURN_IF_ERROR(state_->mailbox.Send(instruction, state_->grid, device, operands[0]));
      Store(frame, Value::Tuple({std::move(operands[0]), ScalarU32(0), Value()}));
      return absl::OkStatus();
    }
    case Opcode::kRecv: {  // recv-done fetches the data.
      XLAD_RETURN_IF_ERROR(state_->meter.CheckLimit(instruction.shape().bytes()));
      Value empty = Value::Zeros(instruction.shape());
      empty.Charge(&state_->meter);
      Store(frame, std::move(empty));
      return absl::OkStatus();
    }
    case Opcode::kSendDone:
      Store(frame, Value());
      return absl::OkStatus();
    case Opcode::kPartitionId:
      Store(frame, ScalarU32(partition_));
      return absl::OkStatus();
    case Opcode::kReplicaId:
      Store(frame, ScalarU32(replica_));
      return absl::OkStatus();
    default:
      break;
  }
  if (!IsCollective(instruction.opcode()) && instruction.opcode() != Opcode::kRecvDone) {
    return absl::UnimplementedError(
        absl::StrCat(ToString(instruction.opcode()), " is not evaluated: ", WhyNoEvaluator(instruction.opcode())));
  }
  if (calls_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("found ", ToString(instruction.opcode()),
                     " in a computation that is applied to elements, expected no communication there"));
  }
  XLAD_RETURN_IF_ERROR(state_->meter.CheckLimit(instruction.shape().bytes()));
  waiting_at_ = &instruction;
  waiting_operands_ = std::move(operands);
  return absl::OkStatus();
}

// async-start and async-update. The wrapped computation runs as soon as it has all its arguments; until then the result
// in the state is zeros.
absl::Status Interpreter::RunAsync(Frame& frame, const Instruction& instruction, std::vector<Value> operands) {
  XLAD_RETURN_IF_ERROR(state_->meter.CheckLimit(instruction.shape().bytes()));
  std::vector<Value> arguments;
  if (instruction.opcode() == Opcode::kAsyncUpdate) {
    const Shape& result = instruction.shape().tuple()[1];
    std::vector<Value>& state = operands[0].tuple();
    if (operands.size() == 1) {
      Value value =
          HasExactShape(state[1], result) || IsEmptyTuple(result) ? std::move(state[1]) : Value::Zeros(result);
      Value after = AsyncResult(instruction.shape(), std::move(state[0].tuple()), std::move(value));
      after.Charge(&state_->meter);
      Store(frame, std::move(after));
      return absl::OkStatus();
    }
    arguments = state[0].tuple();
    operands.erase(operands.begin());
  }
  for (Value& operand : operands) arguments.push_back(std::move(operand));
  const Instruction* const start = AsyncStartOf(instruction);
  if (start == nullptr) {
    return absl::UnimplementedError(
        "async-update with arguments is not evaluated if the async op was started in another computation");
  }
  const Computation& wrapped = *start->called()[0];
  if (arguments.size() == wrapped.parameters().size()) {
    frame.saved = arguments;
    return Push(wrapped, Role::kAsync, std::move(arguments));
  }
  Value state = AsyncResult(instruction.shape(), std::move(arguments), Value::Zeros(instruction.shape().tuple()[1]));
  state.Charge(&state_->meter);
  Store(frame, std::move(state));
  return absl::OkStatus();
}

// A predicate selects the first branch if it is true, otherwise the second. An index out of range selects the last
// branch.
absl::Status Interpreter::RunConditional(const Instruction& conditional, std::vector<Value> operands) {
  const auto& branches = conditional.called();
  int64_t branch = 0;
  const int64_t index = IntAt(operands[0], 0);
  if (operands[0].type() == ElementType::kPred) {
    branch = index != 0 ? 0 : 1;
  } else {
    const auto count = std::ssize(branches);
    branch = index < 0 || index >= count ? count - 1 : index;
  }
  std::vector<Value> arguments;
  arguments.push_back(std::move(operands[branch + 1]));
  return Push(*branches[branch], Role::kCall, std::move(arguments));
}

absl::Status Interpreter::Deliver(Frame& frame, Role role, Value result) {
  const Instruction& instruction = *frame.plan->entries[frame.next].instruction;
  switch (role) {
    case Role::kCall:
      Store(frame, std::move(result));
      return absl::OkStatus();
    case Role::kAsync:
      Store(frame, AsyncResult(instruction.shape(), std::move(frame.saved), std::move(result)));
      return absl::OkStatus();
    case Role::kBody:
      frame.saved.push_back(std::move(result));
      return Push(*instruction.called()[0], Role::kCondition, frame.saved);
    case Role::kCondition:
      break;
  }
  std::vector<Value> state = std::move(frame.saved);
  frame.saved.clear();
  if (IntAt(result, 0) != 0) return Push(*instruction.called()[1], Role::kBody, std::move(state));
  Store(frame, std::move(state[0]));
  return absl::OkStatus();
}

}  // namespace xlad::hlo::eval
