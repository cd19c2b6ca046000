// Functions for editing computations: lists of their instructions, copies, and the cleanup after the last edit.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// Returns the current instructions of a computation in order. Adding instructions to the computation does not change
// the list. Removing an instruction leaves a dangling pointer in the list.
std::vector<Instruction*> Snapshot(const Computation& computation);

// Appends a copy of `instruction` with other operands to `to`. The copy has the same name and called computations.
Instruction* CloneWithOperands(const Instruction& instruction, absl::Span<Instruction* const> operands,
                               Computation* to);

// Appends copies of all instructions of `from` to `to`, with `arguments` in place of the parameters. Returns the copy
// of the root.
Instruction* InlineInto(const Computation& from, absl::Span<Instruction* const> arguments, Computation* to);

// Must be called after the last edit. Sorts instructions so that operands come before users, and removes dead
// instructions.
void FinishEdits(Computation* computation);
// Must be called after the last edit. Removes unused computations, and sorts computations so that callees come before
// callers.
void FinishEdits(Module* module);

}  // namespace xlad::compiler
