// Integer division that rounds up, for numbers that are not negative.
#pragma once

#include <cstdint>

namespace xlad {

// `a` / `b`, rounded up: the number of pieces of `b` that cover `a`. a >= 0, b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The smallest multiple of `multiple` that is at least `a`. a >= 0, multiple > 0.
constexpr int64_t RoundUp(int64_t a, int64_t multiple) { return CeilDiv(a, multiple) * multiple; }

}  // namespace xlad
