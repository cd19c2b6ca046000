// One device's interpreter: explicit frames, so that it can stop at a collective and go on later.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hlo/eval/evaluate.h"
#include "hlo/eval/mailbox.h"
#include "hlo/eval/operation.h"

namespace xlad::hlo::eval {

// A computation made ready to run: operands as slot numbers, and which operand is used for the last time where.
struct Plan {
  struct Step {
    const Instruction* instruction = nullptr;
    EvalFunction function = nullptr;
    std::vector<int> operands;    // Slots.
    std::vector<bool> last_uses;  // Operand i's slot is not read again.
    bool kept = false;            // Somebody reads the result.
    double work = 0;              // WorkOf the instruction.
  };
  std::vector<Step> steps;  // Step i fills slot i.
  size_t root = 0;
};

// What the devices of one evaluation share.
class Program {
 public:
  explicit Program(const EvaluateLimits& limits)
      : meter(limits.live_bytes), instructions_left(limits.instructions), work_left(limits.element_steps) {}
  const Plan& PlanOf(const Computation& computation);

  Meter meter;
  DeviceGrid grid;
  Mailbox mailbox;
  int64_t instructions_left;
  double work_left;

 private:
  absl::flat_hash_map<const Computation*, std::unique_ptr<Plan>> plans_;
};

class Interpreter final : public Caller {
 public:
  Interpreter(Program* program, int64_t replica, int64_t partition)
      : program_(program), replica_(replica), partition_(partition) {}

  // Begins `entry`; then Run until it is done.
  absl::Status Start(const Computation& entry, std::vector<Value> arguments);
  // Goes on until the device is done or waits at a collective.
  absl::Status Run();
  bool done() const { return frames_.empty(); }
  Value TakeResult() { return std::move(result_); }

  // The collective or recv-done that the device waits at, or nullptr; its operands; and its outcome.
  const Instruction* waiting_at() const { return waiting_at_; }
  std::vector<Value>& waiting_operands() { return waiting_operands_; }
  void Resume(Value result);

  // A called computation without collectives, to its end.
  absl::StatusOr<Value> Call(const Computation& computation, std::vector<Value> arguments) override;

 private:
  // What becomes of a frame's result.
  enum class Role { kCall, kCondition, kBody, kAsync };
  struct Frame {
    const Plan* plan = nullptr;
    Role role = Role::kCall;
    size_t next = 0;
    std::vector<Value> slots;
    std::vector<Value> arguments;
    std::vector<Value> saved;  // Of the step that waits for a callee: loop state, an async op's operands.
  };

  absl::Status Push(const Computation& computation, Role role, std::vector<Value> arguments);
  absl::Status StepOnce();
  absl::Status RunStep(Frame& frame, const Plan::Step& step);
  // Instructions that the interpreter runs itself.
  absl::Status RunControl(Frame& frame, const Plan::Step& step, std::vector<Value> operands);
  absl::Status Begin(Frame& frame, const Instruction& instruction, std::vector<Value> operands);
  absl::Status Branch(const Instruction& conditional, std::vector<Value> operands);
  // The top frame is complete: hands its result to the frame below.
  absl::Status Return();
  absl::Status Deliver(Frame& frame, Role role, Value result);
  // Fills the slot of the frame's current step and goes on to the next.
  void Store(Frame& frame, Value value);

  Program* program_;
  int64_t replica_, partition_;
  std::deque<Frame> frames_;  // References stay good when one is pushed.
  int64_t calls_ = 0;         // Depth of Call: no collectives inside.
  const Instruction* waiting_at_ = nullptr;
  std::vector<Value> waiting_operands_;
  Value result_;
};

// About how many element steps an instruction takes, by its shapes; without its called computations.
double WorkOf(const Instruction& instruction);

// "12:3: %add.4 (model.py:57): " for messages.
std::string PlaceOf(const Instruction& instruction);

}  // namespace xlad::hlo::eval
