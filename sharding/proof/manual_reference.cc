#include "sharding/proof/manual_reference.h"

#include "hlo/attribute_keys.h"
#include "sharding/import/inline_calls.h"
#include "sharding/partition/computation_partitioner.h"
#include "sharding/partition/ops/families.h"
#include "sharding/propagate/propagate.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// Whether propagation determines the sharding of the instruction, because it only passes values on or is a border of a
// manual computation.
bool IsFree(const Instruction& instruction, bool in_entry) {
  switch (instruction.opcode()) {
    case Opcode::kGetTupleElement: case Opcode::kWhile: case Opcode::kConditional: return true;
    case Opcode::kParameter: return !in_entry;
    default: return !instruction.shape().is_array() || IsManualBorder(instruction);
  }
}

// Whether the instruction is the copy whose sharding is an in-sharding of a manual computation (manual_borders.h).
bool IsInSharding(const Instruction& instruction) {
  if (instruction.opcode() != Opcode::kCopy) return false;
  for (const Instruction* user : instruction.users()) {
    if (IsCustomCall(*user, hlo::kEnterManualCall)) return true;
  }
  return false;
}

}  // namespace

bool HasManualComputations(const hlo::Module& module) {
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (IsManualBorder(*instruction) || IsCustomCall(*instruction, hlo::kEnterManualTilesCall)) return true;
    }
  }
  return false;
}

absl::StatusOr<MappedProgram> PartitionManualOnly(std::unique_ptr<hlo::Module> module, const ImportOptions& options) {
  MappedProgram mapped;
  XLAD_ASSIGN_OR_RETURN(mapped.whole, Import(std::move(module), options));
  ShardedModule& sharded = mapped.whole;
  for (const hlo::Computation* computation : FlowComputations(*sharded.module)) {
    const bool in_entry = computation == sharded.module->entry();
    for (const auto& instruction : computation->instructions()) {
      const bool is_exit = IsManualBorder(*instruction) && !IsCustomCall(*instruction, hlo::kEnterManualCall);
      if (IsInSharding(*instruction) || is_exit) continue;
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
  XLAD_ASSIGN_OR_RETURN(mapped.program, Partition(sharded, FamilyOf, &mapped.source_map));
  return mapped;
}

}  // namespace xlad::sharding
