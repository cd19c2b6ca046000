// Cumulative sums, products, maxima and minima as scans.
//
// Needs: simplified, reducers in their canonical form. Leaves: no reduce-window of one operand whose window is the
// whole of one dimension, padded on one side so that result i covers the elements up to (or from) i, where the
// initial value may be combined any number of times. As a window every result would cost the length of the dimension.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

absl::Status MakeScans(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
