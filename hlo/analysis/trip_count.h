// How often a loop runs, where its text says so: an induction variable from a constant by a constant step compared
// with a constant.
#pragma once

#include <optional>

#include "hlo/module.h"

namespace xlad::hlo {

// Of a kWhile; nullopt where it is not of that form.
std::optional<int64_t> TripCount(const hlo::Instruction& loop);

}  // namespace xlad::hlo
