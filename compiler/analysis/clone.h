// Functions for editing computations: lists of their instructions, copies, and the cleanup after the last edit.
#pragma once

#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
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

// Adds a parameter with the value of `outside` to `fused`, the computation of a fusion, and appends `outside` to the
// operands of the fusion.
Instruction* AddFusedParameter(Instruction* outside, Computation* fused, std::vector<Instruction*>* operands);

// Makes `roots` the results of `fused`: one root, or a tuple of several. Returns the fusion instruction that computes
// them, which the caller adds to a computation with the operands of AddFusedParameter. The results keep the layouts of
// the roots, and the metadata is that of `like`.
std::unique_ptr<Instruction> MakeFusion(Computation* fused, absl::Span<Instruction* const> roots,
                                        absl::string_view name, absl::string_view kind, const Instruction& like);

// Must be called after the last edit. Sorts instructions so that operands come before users, and removes dead
// instructions.
void FinishEdits(Computation* computation);
// Must be called after the last edit. Removes unused computations, and sorts computations so that callees come before
// callers.
void FinishEdits(Module* module);

}  // namespace xlad::compiler
