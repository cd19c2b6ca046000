// How often a while runs.
#pragma once

#include <cstdint>
#include <optional>

#include "hlo/module.h"

namespace xlad::compiler {

// The frontend attribute under which a pass keeps what it found before fusion made it hard to see.
inline constexpr char kTripCountAttribute[] = "xlad.trip_count";

// The number of rounds of a loop that counts a carried integer from a constant by a constant up (or down) to a
// constant, as scan and fori_loop do. Empty where that cannot be seen.
std::optional<int64_t> TripCount(const hlo::Instruction& loop);

}  // namespace xlad::compiler
