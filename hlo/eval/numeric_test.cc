// Conversions of integers to floats through doubles.
#include "hlo/eval/numeric.h"

#include "gtest/gtest.h"

namespace xlad::hlo::eval {
namespace {

TEST(RoundToOdd, NeverRoundsTwice) {
  // 2^62 + 2^38 + 1 is just above the middle of two floats, but its nearest double is the middle.
  const int64_t value = (int64_t{1} << 62) + (int64_t{1} << 38) + 1;
  EXPECT_EQ(static_cast<float>(RoundToOdd(value)), static_cast<float>(value));
  for (uint64_t i = 1; i < 100'000; ++i) {
    const uint64_t x = i * 0x9E3779B97F4A7C15u >> (i % 60);
    EXPECT_EQ(static_cast<float>(RoundToOdd(x)), static_cast<float>(x)) << x;
    EXPECT_EQ(static_cast<float>(RoundToOdd(static_cast<int64_t>(x))), static_cast<float>(static_cast<int64_t>(x)));
  }
}

}  // namespace
}  // namespace xlad::hlo::eval
