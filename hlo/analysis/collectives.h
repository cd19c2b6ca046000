// Whether a computation contains a collective (IsCollective). Send and recv are not collectives.
#pragma once

#include "hlo/module.h"

namespace xlad::hlo {

// Returns true if the computation, or one that it calls at any depth, contains a collective.
bool ContainsCollective(const Computation& computation);

}  // namespace xlad::hlo
