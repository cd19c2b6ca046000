// Proves that devices which meet in a collective inside a loop or branch also go into it together.
//
// Needs: canonical collectives, no fusions. Changes nothing. Leaves: every while and conditional with collectives
// inside has a condition that is equal on all devices of each of their groups.
//
// Follows, for every value, which devices are sure to hold the same: parameters by their boxes, offsets and masks made
// from the device's number by computing them, results of collectives by what went into them, everything else by its
// operands. Errors are InvalidArgument and name the
// instruction, a pair of devices and the collective.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

absl::Status CheckUniformConditions(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
