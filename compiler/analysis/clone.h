// Editing computations: lists of instructions that stay valid meanwhile, copies, and what follows the last edit.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// The instructions of a computation at this moment, in order. Adding instructions does not change the list; removing
// one leaves a dangling pointer in it.
std::vector<Instruction*> Snapshot(const Computation& computation);

// Appends a copy of `instruction` with other operands to `to`. Shares its called computations.
Instruction* CloneWithOperands(const Instruction& instruction, absl::Span<Instruction* const> operands,
                               Computation* to);

// Appends copies of all instructions of `from` to `to`, with `arguments` in place of the parameters. Returns the copy
// of the root.
Instruction* InlineInto(const Computation& from, absl::Span<Instruction* const> arguments, Computation* to);

// To be called after edits: restores the order of operands before users, and removes dead instructions.
void FinishEdits(Computation* computation);
// To be called after edits: removes unused computations, and restores the order of callees before callers.
void FinishEdits(Module* module);

}  // namespace xlad::compiler
