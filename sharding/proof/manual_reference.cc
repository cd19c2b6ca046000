#include "sharding/proof/manual_reference.h"

#include "sharding/import/inline_calls.h"
#include "sharding/partition/partitioner.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// Its result is inside.
bool Enters(const Instruction& instruction) {
  return instruction.opcode() == Opcode::kCustomCall &&
         instruction.attributes().custom_call_target == "xla.sdy.GlobalToLocalShape";
}

// Whether its sharding is that of a border, which stays, or of what it passes on, which propagation finds.
bool IsFree(const Instruction& instruction, bool in_entry) {
  switch (instruction.opcode()) {
    case Opcode::kGetTupleElement: case Opcode::kWhile: case Opcode::kConditional: return true;
    case Opcode::kParameter: return !in_entry;
    default: return !instruction.shape().is_array() || IsManualBorderCall(instruction);
  }
}

bool IsInSharding(const Instruction& instruction) {
  if (instruction.opcode() != Opcode::kCopy) return false;
  for (const Instruction* user : instruction.users()) {
    if (Enters(*user)) return true;
  }
  return false;
}

}  // namespace

bool HasManualComputations(const hlo::Module& module) {
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      const std::string& target = instruction->attributes().custom_call_target;
      if (IsManualBorderCall(*instruction) || target == "SPMDFullToShardShape") return true;
    }
  }
  return false;
}

absl::StatusOr<TracedProgram> PartitionManualOnly(std::unique_ptr<hlo::Module> module, const ImportOptions& options) {
  TracedProgram traced;
  XLAD_ASSIGN_OR_RETURN(traced.whole, Import(std::move(module), options));
  ShardedModule& sharded = traced.whole;
  for (const hlo::Computation* computation : FlowComputations(*sharded.module)) {
    const bool in_entry = computation == sharded.module->entry();
    for (const auto& instruction : computation->instructions()) {
      if (IsInSharding(*instruction) || (IsManualBorderCall(*instruction) && !Enters(*instruction))) continue;
      sharded.shardings.erase(instruction.get());
      if (IsFree(*instruction, in_entry)) continue;
      sharded.shardings[instruction.get()] = {TensorSharding::Replicated(instruction->shape().ndim())};
    }
  }
  for (TensorSharding& result : sharded.results) {
    result = TensorSharding::Replicated(std::ssize(result.dims));
  }
  sharded.groups.clear();
  XLAD_RETURN_IF_ERROR(Propagate(&sharded));
  XLAD_ASSIGN_OR_RETURN(traced.program, Partition(sharded, &traced.trace));
  return traced;
}

}  // namespace xlad::sharding
