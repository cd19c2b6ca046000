// Which ops are linear. A linear op that is applied to the partial sums on every device returns partial sums of its
// result, so a reduction over the devices can be deferred until after the op.
#pragma once

#include "hlo/module.h"

namespace xlad::sharding {

// Whether `op` is linear in operand `operand`. An op is jointly linear in all operands for which the function returns
// true, for example in both operands of an add, in the two values of a select, or in one factor of a product if the
// other factor is a finite constant. Examples:
//
//   y = multiply(x, two)       linear in x:  the sum of 2 x over the devices is 2 times the sum of x
//   y = multiply(x, x)         not linear
//   y = convert(x) to bf16     not linear: the sum of rounded parts differs from the rounded sum
//
// If one of these operands is a partial sum and another one is replicated, only one device may count the replicated
// operand. All operands and the result must be arrays.
bool IsLinearIn(const hlo::Instruction& op, int64_t operand);

}  // namespace xlad::sharding
