// Powers of two and binary logarithms of signed integers.
#pragma once

#include <bit>
#include <cstdint>

namespace xlad {

constexpr bool IsPowerOfTwo(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// Returns the largest power of two that is at most `n`, or 0 if n is 0. Requires n >= 0.
constexpr int64_t PowerOfTwoAtMost(int64_t n) {
  const uint64_t bits = n;
  return std::bit_floor(bits);
}

// Returns the largest h with 2^h <= n, or -1 if n is 0. Requires n >= 0.
constexpr int FloorLog2(int64_t n) {
  const uint64_t bits = n;
  return std::bit_width(bits) - 1;
}

// Returns the smallest h with 2^h >= n. Requires n >= 0.
constexpr int CeilLog2(int64_t n) { return n <= 1 ? 0 : FloorLog2(n - 1) + 1; }

// Returns the smallest power of two that is at least `n`. Requires 0 <= n <= 2^62.
constexpr int64_t PowerOfTwoAtLeast(int64_t n) { return int64_t{1} << CeilLog2(n); }

}  // namespace xlad
