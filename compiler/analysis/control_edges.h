// The control edges of a computation.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// The instructions that have a control predecessor or are one, and those that compute the tuple of such a
// get-tuple-element. Removing one of these instructions removes its edges, so a pass that merges instructions leaves
// them alone.
absl::flat_hash_set<const Instruction*> OrderedByControl(const Computation& computation);

}  // namespace xlad::compiler
