// Identities of reductions: values that can be combined with any other value without changing it.
#pragma once

#include <optional>

#include "hlo/build/builder.h"

namespace xlad::sharding {

// Whether `reduction` over `type` is associative (up to rounding) and commutative, and has an identity.
bool HasIdentity(hlo::Opcode reduction, tensor::ElementType type);
// The opcode of a reducer over `type` (hlo::ReducerOpcode) if it has an identity, otherwise nullopt.
std::optional<hlo::Opcode> ReducerWithIdentity(const hlo::Computation& reducer, tensor::ElementType type);
// Builds the identity, a scalar. Returns null if HasIdentity is false. The identity of a floating-point sum is
// -0, because x + -0 is x for every x, whereas -0 + +0 is +0. In types of 8 bits or fewer it is +0, because some of
// them have no -0.
hlo::Instruction* IdentityOf(hlo::Builder& builder, hlo::Opcode reduction, tensor::ElementType type);
// Whether `scalar` is a constant from which every device may start its part of a reduction without changing the
// combined result. This is true of the identity and, for a sum, also of +0.
bool IsNeutralStart(const hlo::Instruction& scalar, hlo::Opcode reduction);

}  // namespace xlad::sharding
