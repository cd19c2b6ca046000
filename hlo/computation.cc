// Adding, removing and ordering the instructions of a computation.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/work.h"
#include "hlo/module.h"
#include "hlo/side_effect.h"

namespace xlad::hlo {
namespace {

using Set = absl::flat_hash_set<const Instruction*>;
using ComputationMemo = absl::flat_hash_map<const Computation*, bool>;

// Returns true if the instruction, or one in a computation that it calls at any depth, has a side effect.
bool MustRun(const Instruction& instruction, ComputationMemo* memo) {
  if (HasSideEffect(instruction)) return true;
  for (const Computation* const called : instruction.called()) {
    // The memo gets an entry before the walk, so that the walk ends even if a computation calls itself.
    const auto [entry, fresh] = memo->emplace(called, false);
    if (fresh) {
      bool found = false;
      for (const auto& inner : called->instructions()) found = found || MustRun(*inner, memo);
      (*memo)[called] = found;
      if (found) return true;
    } else if (entry->second) {
      return true;
    }
  }
  return false;
}

// Moves every instruction to its position.
void Reorder(const absl::flat_hash_map<const Instruction*, int64_t>& position,
             std::vector<std::unique_ptr<Instruction>>* instructions) {
  std::vector<std::unique_ptr<Instruction>> ordered(instructions->size());
  for (std::unique_ptr<Instruction>& instruction : *instructions) {
    const int64_t at = position.at(instruction.get());
    XLAD_CHECK(at >= 0 && at < std::ssize(ordered)) << instruction->name() << " has an input in another computation";
    ordered[at] = std::move(instruction);
  }
  *instructions = std::move(ordered);
}

// Calls `visit` for the operands and then the control predecessors of `instruction`.
template <typename Visit>
void ForEachInput(const Instruction& instruction, const Visit& visit) {
  for (Instruction* const operand : instruction.operands()) visit(operand);
  for (Instruction* const before : instruction.control_predecessors()) visit(before);
}

}  // namespace

void Computation::EnterParameter(Instruction* parameter) {
  // A parameter whose number is far above the others is stored separately, so that "parameter(999999999)" does not
  // allocate memory for all numbers below it.
  constexpr size_t kAhead = 64;
  late_parameters_.push_back(parameter);
  const size_t limit = kAhead + 2 * (parameters_.size() + late_parameters_.size());
  const auto enter = [&](Instruction* candidate) {
    if (candidate->number() < 0 || std::cmp_greater_equal(candidate->number(), limit)) return false;
    const size_t number = candidate->number();
    if (number >= parameters_.size()) parameters_.resize(number + 1, nullptr);
    if (parameters_[number] == nullptr) parameters_[number] = candidate;
    return true;
  };
  std::erase_if(late_parameters_, enter);
}

Instruction* Computation::Add(std::unique_ptr<Instruction> instruction, absl::Span<Instruction* const> operands) {
  Instruction* const added = instruction.get();
  added->parent_ = this;
  if (added->name_.empty()) added->name_ = std::string(hlo::ToString(added->opcode()));
  if (parent_ != nullptr && !parent_->TakeName(added->name_)) added->name_ = parent_->UniqueName(added->name_);
  added->operands_.reserve(operands.size());
  for (Instruction* const operand : operands) added->AppendOperand(operand);
  if (added->opcode() == Opcode::kParameter) EnterParameter(added);
  instructions_.push_back(std::move(instruction));
  return added;
}

void Computation::Erase(const Set& gone) {
  CountWork(std::ssize(instructions_));
  for (const auto& instruction : instructions_) {
    if (gone.contains(instruction.get())) continue;
    auto& users = instruction->users_;
    const auto is_gone = [&](const Instruction* user) { return gone.contains(user); };
    users.erase(std::remove_if(users.begin(), users.end(), is_gone), users.end());
    std::erase_if(instruction->control_predecessors_, [&](const Instruction* before) { return gone.contains(before); });
  }
  std::erase_if(instructions_, [&](const auto& instruction) { return gone.contains(instruction.get()); });
}

void Computation::Remove(Instruction* instruction) { RemoveAll({instruction}); }

void Computation::RemoveAll(const Set& instructions) {
  if (instructions.empty()) return;
  std::vector<Instruction*> found;
  for (const auto& instruction : instructions_) {
    if (instructions.contains(instruction.get())) found.push_back(instruction.get());
  }
  XLAD_CHECK(found.size() == instructions.size()) << "cannot remove an instruction that is not in " << name_;
  for (Instruction* const instruction : found) instruction->DropOperands();
  for (const Instruction* const instruction : found) {
    XLAD_CHECK(instruction->users_.empty() && instruction != root_ && instruction->opcode() != Opcode::kParameter)
        << "cannot remove " << instruction->name();
  }
  Erase(instructions);
}

int64_t Computation::RemoveDead() {
  Set live;
  live.reserve(instructions_.size());
  std::vector<const Instruction*> pending;
  const auto mark = [&](const Instruction* instruction) {
    if (live.insert(instruction).second) pending.push_back(instruction);
  };
  ComputationMemo memo;
  if (root_ != nullptr) mark(root_);
  for (const auto& instruction : instructions_) {
    if (instruction->opcode() == Opcode::kParameter || MustRun(*instruction, &memo)) mark(instruction.get());
  }
  while (!pending.empty()) {
    const Instruction* const instruction = pending.back();
    pending.pop_back();
    ForEachInput(*instruction, mark);
  }
  Set dead;
  for (const auto& instruction : instructions_) {
    if (!live.contains(instruction.get())) dead.insert(instruction.get());
  }
  if (!dead.empty()) Erase(dead);
  return std::ssize(dead);
}

void Computation::SortTopologically() {
  // Walks depth-first from each instruction to its inputs, in the current order. An order that is already valid does
  // not change.
  constexpr int64_t kOpen = -1;  // The walk has entered the instruction, but not left it.
  absl::flat_hash_map<const Instruction*, int64_t> position;
  position.reserve(instructions_.size());
  int64_t next = 0;
  std::vector<Instruction*> stack;
  for (const auto& start : instructions_) {
    stack.push_back(start.get());
    while (!stack.empty()) {
      Instruction* const instruction = stack.back();
      const auto [entry, is_new] = position.try_emplace(instruction, kOpen);
      if (is_new) {
        const size_t first = stack.size();
        ForEachInput(*instruction, [&](Instruction* input) {
          const auto found = position.find(input);
          XLAD_CHECK(found == position.end() || found->second != kOpen)
              << "cycle through " << input->name() << " in " << name_;
          if (found == position.end()) stack.push_back(input);
        });
        std::reverse(stack.begin() + first, stack.end());
        continue;
      }
      if (entry->second == kOpen) entry->second = next++;
      stack.pop_back();
    }
  }
  Reorder(position, &instructions_);
}

void Computation::SetOrder(absl::Span<Instruction* const> order) {
  absl::flat_hash_map<const Instruction*, int64_t> position;
  for (Instruction* const instruction : order) {
    ForEachInput(*instruction, [&](const Instruction* input) {
      XLAD_CHECK(position.contains(input)) << instruction->name() << " before its input " << input->name();
    });
    position.emplace(instruction, position.size());
  }
  XLAD_CHECK(position.size() == instructions_.size() && order.size() == instructions_.size())
      << "an order of " << order.size() << " for " << instructions_.size() << " instructions";
  Reorder(position, &instructions_);
}

}  // namespace xlad::hlo
