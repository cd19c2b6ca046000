// Algebraic simplification: rules that take an instruction and give a cheaper one of the same value.
//
// Needs: no layouts (Normalise). Leaves: no instruction to which a rule of simplify_rules.h applies. Every rule is
// exact: the same bits for all inputs, the sign of a zero sum with an identity element and NaN payloads aside.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

absl::Status Simplify(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
