// The interpreter of one device. Its call stack is a data structure, so that it can stop at a collective or recv-done
// and continue later.
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

// A computation prepared for execution: operands as slot numbers, and the last use of each slot.
struct ComputationPlan {
  struct Entry {
    const Instruction* instruction = nullptr;
    EvalFunction function = nullptr;  // Null if the interpreter itself runs the instruction.
    std::vector<int64_t> operands;    // The slots of the operands.
    std::vector<bool> last_uses;      // Whether the slot of operand i is not read afterwards.
    bool is_used = false;             // Whether the result is read at all.
    double work = 0;                  // WorkOf(*instruction).
  };
  std::vector<Entry> entries;  // In execution order. Entry i writes slot i.
  int64_t root = 0;            // The slot of the computation's result.
};

// The state that all devices of one evaluation share.
class EvaluationState {
 public:
  explicit EvaluationState(const EvaluateLimits& limits)
      : meter(limits.live_bytes), instructions_left(limits.instructions), work_left(limits.element_steps) {}
  // Returns the plan of a computation. The first call for a computation makes its plan.
  const ComputationPlan& PlanOf(const Computation& computation);

  MemoryMeter meter;
  DeviceGrid grid;
  Mailbox mailbox;
  int64_t instructions_left;
  double work_left;

 private:
  absl::flat_hash_map<const Computation*, std::unique_ptr<ComputationPlan>> plans_;
};

class Interpreter final : public Caller {
 public:
  Interpreter(EvaluationState* state, int64_t replica, int64_t partition)
      : state_(state), replica_(replica), partition_(partition) {}

  // Starts the computation `entry`; Run executes it.
  absl::Status Start(const Computation& entry, std::vector<Value> arguments);
  // Runs until the device is done or waits at a collective or recv-done.
  absl::Status Run();
  bool done() const { return frames_.empty(); }
  Value TakeResult() { return std::move(result_); }

  // The collective or recv-done that the device waits at (null if it does not wait), and its operands. Resume sets the
  // result of this instruction.
  const Instruction* waiting_at() const { return waiting_at_; }
  std::vector<Value>& waiting_operands() { return waiting_operands_; }
  void Resume(Value result);

  // Runs a called computation that has no collectives to its end.
  absl::StatusOr<Value> Call(const Computation& computation, std::vector<Value> arguments) override;

 private:
  // Why a frame was pushed. The role determines how the frame below uses the result.
  enum class Role { kCall, kCondition, kBody, kAsync };
  struct Frame {
    const ComputationPlan* plan = nullptr;
    Role role = Role::kCall;
    int64_t next = 0;  // The entry that runs next.
    std::vector<Value> slots;
    std::vector<Value> arguments;
    std::vector<Value> saved;  // The loop state while a loop condition runs; the operands while an async op runs.
  };

  absl::Status Push(const Computation& computation, Role role, std::vector<Value> arguments);
  absl::Status RunNext();
  absl::Status RunInstruction(Frame& frame, const ComputationPlan::Entry& planned);
  // Runs an instruction that has no evaluation function.
  absl::Status RunControl(Frame& frame, const ComputationPlan::Entry& planned, std::vector<Value> operands);
  absl::Status RunAsync(Frame& frame, const Instruction& instruction, std::vector<Value> operands);
  absl::Status RunConditional(const Instruction& conditional, std::vector<Value> operands);
  // Pops the top frame, which is complete, and delivers its result to the frame below.
  absl::Status Return();
  absl::Status Deliver(Frame& frame, Role role, Value result);
  // Writes the slot of the frame's current entry, if its result is read, and advances to the next entry.
  void Store(Frame& frame, Value value);

  EvaluationState* state_;
  int64_t replica_, partition_;
  std::deque<Frame> frames_;  // A deque, because references must stay valid when a frame is pushed.
  int64_t calls_ = 0;         // The number of active Calls. During a Call, a collective is an error.
  const Instruction* waiting_at_ = nullptr;
  std::vector<Value> waiting_operands_;
  Value result_;
};

// An estimate of the element operations of an instruction from its shapes, without those of called computations.
double WorkOf(const Instruction& instruction);

// The place of an instruction for messages: "12:3: %add.4 (model.py:57)".
std::string PlaceOf(const Instruction& instruction);

}  // namespace xlad::hlo::eval
