// Integer division that rounds up, for numbers that are not negative.
#pragma once

#include <cstdint>

namespace xlad {

// Returns `a` / `b`, rounded up: the number of pieces of size `b` that cover `a`. Requires a >= 0 and b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the smallest multiple of `multiple` that is at least `a`. Requires a >= 0 and multiple > 0.
constexpr int64_t RoundUp(int64_t a, int64_t multiple) { return CeilDiv(a, multiple) * multiple; }

}  // namespace xlad
