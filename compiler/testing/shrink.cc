#include "compiler/testing/shrink.h"

#include "hlo/build/builder.h"
#include "hlo/verify/verifier.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Module;
using hlo::Opcode;

// Whether the first operand of an instruction with this opcode may replace the instruction.
bool MayBecomeOperand(Opcode opcode) {
  return opcode == Opcode::kCustomCall || opcode == Opcode::kOptBarrier || opcode == Opcode::kReverse ||
         opcode == Opcode::kTranspose || opcode == Opcode::kWhile || opcode == Opcode::kDynamicUpdateSlice ||
         opcode == Opcode::kCopy || opcode == Opcode::kSort;
}

Instruction* Find(Module* module, const std::string& name) {
  for (const auto& computation : module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (instruction->name() == name) return instruction.get();
    }
  }
  return nullptr;
}

// A change of an instruction: replacement by the first operand, replacement by zeros, or removal of annotations.
enum class Change { kOperand, kZero, kPlain };

bool Apply(Module* module, Instruction* instruction, Change change) {
  hlo::Computation* computation = instruction->parent();
  if (change == Change::kPlain) {
    if (instruction->opcode() == Opcode::kCustomCall || instruction->frontend_attributes().empty()) return false;
    instruction->mutable_frontend_attributes().clear();
    return true;
  }
  if (instruction->opcode() == Opcode::kParameter || computation->root() == instruction) return false;
  Instruction* with = nullptr;
  if (change == Change::kOperand) {
    if (!MayBecomeOperand(instruction->opcode())) return false;
    with = instruction->operand(0);
    if (!with->shape().SameIgnoringLayout(instruction->shape())) return false;
  } else {
    const bool zero = instruction->opcode() == Opcode::kConstant || instruction->opcode() == Opcode::kTuple ||
                      (instruction->opcode() == Opcode::kBroadcast && instruction->operand(0)->shape().is_scalar() &&
                       instruction->operand(0)->opcode() == Opcode::kConstant);
    if (zero || !instruction->shape().is_array()) return false;
    hlo::Builder builder(computation);
    with = builder.Zero(instruction->shape());
  }
  instruction->ReplaceAllUsesWith(with);
  if (instruction->users().empty()) computation->Remove(instruction);
  computation->SortTopologically();
  computation->RemoveDead();
  module->RemoveUnusedComputations();
  return hlo::Verify(*module).ok();
}

}  // namespace

std::unique_ptr<Module> Shrink(const Module& module, const std::function<bool(const Module&)>& fails, int tries) {
  std::unique_ptr<Module> best = module.Clone();
  for (bool progress = true; progress && tries > 0;) {
    progress = false;
    std::vector<std::string> names;
    for (const auto& computation : best->computations()) {
      for (const auto& instruction : computation->instructions()) names.push_back(instruction->name());
    }
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
      for (const Change change : {Change::kOperand, Change::kZero, Change::kPlain}) {
        if (tries <= 0) return best;
        std::unique_ptr<Module> candidate = best->Clone();
        Instruction* instruction = Find(candidate.get(), *name);
        if (instruction == nullptr) break;
        if (!Apply(candidate.get(), instruction, change)) continue;
        --tries;
        if (!fails(*candidate)) continue;
        best = std::move(candidate);
        progress = true;
      }
    }
  }
  return best;
}

}  // namespace xlad::compiler
