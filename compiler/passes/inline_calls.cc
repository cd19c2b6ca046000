// Replaces every call with its callee's instructions, and makes the computations of each while and conditional its own.
//
// Needs: a verified module. Leaves: no `call`; every step computation except the entry has exactly one caller, so that
// a pass may change it for this caller. ResourceExhausted if calls, or the computations of control flow, expand to more
// than 4 million instructions.
#include "compiler/passes/passes.h"

#include "absl/container/flat_hash_set.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/instruction_facts.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kMaxInlinedInstructions = 4'000'000;

// Copies the metadata of the call to the inlined instructions that have no metadata. The inlined instructions begin at
// position `first`.
void InheritMetadata(const Instruction& call, size_t first) {
  const auto& all = call.parent()->instructions();
  for (size_t i = first; i < all.size(); ++i) {
    hlo::Metadata& metadata = all[i]->mutable_metadata();
    if (metadata.stack_frame_id == 0 && metadata.source_file.empty()) metadata = call.metadata();
  }
}

absl::Status InlineIn(Computation* computation, int64_t* total) {
  bool changed = false;
  for (Instruction* call : Snapshot(*computation)) {
    if (call->opcode() != Opcode::kCall) continue;
    const Computation* callee = call->called()[0];
    *total += std::ssize(callee->instructions());
    if (*total > kMaxInlinedInstructions) {
      return absl::ResourceExhaustedError(
          absl::StrCat("calls expand to ", *total, " instructions at ", Describe(*call), ", expected at most ",
                       kMaxInlinedInstructions));
    }
    const size_t first = computation->instructions().size();
    Instruction* result = InlineInto(*callee, call->operands(), computation);
    InheritMetadata(*call, first);
    call->ReplaceAllUsesWith(result);
    changed = true;
  }
  if (changed) FinishEdits(computation);
  return absl::OkStatus();
}

// Clones each computation that `computation` calls, directly or indirectly, if the callee already has another caller,
// that is, if it is in `owned`.
absl::Status CloneSharedComputations(Computation* computation, absl::flat_hash_set<Computation*>* owned,
                                     int64_t* total) {
  for (Instruction* instruction : Snapshot(*computation)) {
    if (instruction->opcode() != Opcode::kWhile && instruction->opcode() != Opcode::kConditional) continue;
    for (Computation*& callee : instruction->mutable_called()) {
      if (owned->contains(callee)) callee = callee->parent()->CloneComputation(*callee, callee->name());
      owned->insert(callee);
      *total += std::ssize(callee->instructions());
      if (*total > kMaxInlinedInstructions) {
        return absl::ResourceExhaustedError(absl::StrCat("control flow expands to ", *total, " instructions at ",
                                                         Describe(*instruction), ", expected at most ",
                                                         kMaxInlinedInstructions));
      }
      XLAD_RETURN_IF_ERROR(CloneSharedComputations(callee, owned, total));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InlineCalls(hlo::Module& module, PassContext&) {
  int64_t total = 0;
  std::vector<Computation*> all;
  for (const auto& computation : module.computations()) all.push_back(computation.get());
  for (Computation* computation : all) XLAD_RETURN_IF_ERROR(InlineIn(computation, &total));
  absl::flat_hash_set<Computation*> owned;
  total = 0;
  XLAD_RETURN_IF_ERROR(CloneSharedComputations(module.entry(), &owned, &total));
  FinishEdits(&module);
  return absl::OkStatus();
}

}  // namespace xlad::compiler
