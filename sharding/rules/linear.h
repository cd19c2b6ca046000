// Which ops are linear: applied to the partial sums on every device, they return partial sums of their result. A
// reduction over the devices can be deferred until after such ops.
#pragma once

#include "hlo/analysis/constants.h"
#include "hlo/module.h"

namespace xlad::sharding {

// Whether `op` is linear in operand `operand`, taken together with all other operands for which this is true. This is
// true for both operands of an add, for the two values of a select, and for one factor of a product if the other factor
// is a finite constant:
//
//   y = multiply(x, two)       linear in x:  the sum of 2 x over the devices is 2 times the sum of x
//   y = multiply(x, x)         not linear
//   y = convert(x) to bf16     not linear: the sum of rounded parts differs from the rounded sum
//
// If one of these operands is a partial sum and another one is replicated, only one device may count the replicated
// one. Every operand and the result must be arrays.
bool IsLinearIn(const hlo::Instruction& op, int64_t operand);

}  // namespace xlad::sharding
