// Sub-byte integers, and conversions of integers through doubles.
#include "hlo/eval/numeric.h"

#include "gtest/gtest.h"

namespace xlad::hlo::eval {
namespace {

TEST(SubByte, Wraps) {
  EXPECT_EQ(WrapSubByte(ElementType::kS4, 8), -8);
  EXPECT_EQ(WrapSubByte(ElementType::kS4, -9), 7);
  EXPECT_EQ(WrapSubByte(ElementType::kU4, 17), 1);
  EXPECT_EQ(WrapSubByte(ElementType::kU4, -1), 15);
  EXPECT_EQ(WrapSubByte(ElementType::kS2, 2), -2);
  EXPECT_EQ(WrapSubByte(ElementType::kS1, 1), -1);
  EXPECT_EQ(WrapSubByte(ElementType::kU1, 3), 1);
}

TEST(RoundToOdd, NeverRoundsTwice) {
  // 2^62 + 2^38 + 1 lies just above the middle of two floats; through a plain double it would land on the middle.
  const int64_t value = (int64_t{1} << 62) + (int64_t{1} << 38) + 1;
  EXPECT_EQ(static_cast<float>(ToDoubleForRounding(value)), static_cast<float>(value));
  for (uint64_t i = 1; i < 100'000; ++i) {
    const uint64_t x = i * 0x9E3779B97F4A7C15u >> (i % 60);
    EXPECT_EQ(static_cast<float>(ToDoubleForRounding(x)), static_cast<float>(x)) << x;
    EXPECT_EQ(static_cast<float>(ToDoubleForRounding(static_cast<int64_t>(x))),
              static_cast<float>(static_cast<int64_t>(x)));
  }
}

}  // namespace
}  // namespace xlad::hlo::eval
