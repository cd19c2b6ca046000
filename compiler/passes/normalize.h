// Takes out what says nothing about values: layouts, shardings, copies, dependencies, annotation calls; and gives
// reducers their canonical computation.
//
// Needs: any verified module after inlining. Leaves: row-major shapes without layouts, no `copy`, `bitcast`,
// `add-dependency`, `replica-id`, no sharding custom-calls; equal reducers are one computation.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

// Unimplemented for dynamic dimensions and more than one replica.
absl::Status Normalise(hlo::Module& module, PassContext& context);

// Takes out opt-barriers. After the last CSE, which must not merge what they keep apart.
absl::Status RemoveBarriers(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
