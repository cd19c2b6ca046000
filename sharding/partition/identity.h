// Identities of reductions: values that leave every other one as it is.
#pragma once

#include "hlo/build/builder.h"

namespace xlad::sharding {

// Whether `reduction` over `type` is associative, commutative and has an identity.
bool HasIdentity(hlo::Opcode reduction, tensor::ElementType type);
// The identity, a scalar, or null if HasIdentity is false. That of a floating-point sum is -0: x + -0 is x for every
// x, but -0 + +0 is +0.
hlo::Instruction* IdentityOf(hlo::Builder& builder, hlo::Opcode reduction, tensor::ElementType type);
// Whether `scalar` is a constant that leaves every result of the reduction as it is that was started from it: the
// identity, or either zero of a sum.
bool IsNeutralStart(const hlo::Instruction& scalar, hlo::Opcode reduction);

}  // namespace xlad::sharding
