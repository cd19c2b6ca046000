// Which ops pass sums through: applied to the parts of a sum, they give the parts of the result's sum.
#pragma once

#include "hlo/module.h"

namespace xlad::sharding {

// Whether `op` is linear in operand `operand`, taken together with all other operands for which this is true (add:
// both; select: the two values; a product with a finite constant: the other factor). Where one of these is whole and
// another one is the part of a sum, the whole one counts on one device only. One array each. A conversion to a coarser
// type is not linear: rounded parts add up to less than the rounded sum is worth.
bool IsLinearIn(const hlo::Instruction& op, int64_t operand);

// The scalar that every element of x repeats, or x.
const hlo::Instruction* RepeatedScalar(const hlo::Instruction* x);

// Whether every element is the constant zero, which is a sum of any number of zeros.
bool IsZero(const hlo::Instruction& x);

}  // namespace xlad::sharding
