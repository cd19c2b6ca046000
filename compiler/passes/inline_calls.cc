#include "compiler/passes/inline_calls.h"

#include "absl/container/flat_hash_set.h"
#include "compiler/analysis/hlo_util.h"

namespace xlad::compiler {
namespace {

constexpr int64_t kMostInstructions = 4'000'000;

// What was made from a call without a source of its own is told by the call's.
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
    if (*total > kMostInstructions) {
      return absl::ResourceExhaustedError(
          absl::StrCat("calls expand to more than ", kMostInstructions, " instructions at ", Describe(*call)));
    }
    const size_t first = computation->instructions().size();
    Instruction* result = InlineInto(*callee, call->operands(), computation);
    InheritMetadata(*call, first);
    call->ReplaceAllUsesWith(result);
    changed = true;
  }
  if (changed) {
    computation->SortTopologically();
    computation->RemoveDead();
  }
  return absl::OkStatus();
}

// Clones computations that are called for the second time.
absl::Status MakeOwn(Computation* computation, absl::flat_hash_set<Computation*>* owned, int64_t* total) {
  for (Instruction* instruction : Snapshot(*computation)) {
    if (instruction->opcode() != Opcode::kWhile && instruction->opcode() != Opcode::kConditional) continue;
    for (Computation*& callee : instruction->mutable_called()) {
      if (owned->contains(callee)) callee = callee->parent()->CloneComputation(*callee, callee->name());
      owned->insert(callee);
      *total += std::ssize(callee->instructions());
      if (*total > kMostInstructions) {
        return absl::ResourceExhaustedError(absl::StrCat("control flow expands to more than ", kMostInstructions,
                                                         " instructions at ", Describe(*instruction)));
      }
      XLAD_RETURN_IF_ERROR(MakeOwn(callee, owned, total));
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
  XLAD_RETURN_IF_ERROR(MakeOwn(module.entry(), &owned, &total));
  module.RemoveUnusedComputations();
  module.SortComputations();
  return absl::OkStatus();
}

}  // namespace xlad::compiler
