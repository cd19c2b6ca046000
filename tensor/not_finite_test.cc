#include "tensor/not_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

namespace xlad::tensor {
namespace {

template <typename T>
NotFinite Find(ElementType type, const std::vector<T>& values) {
  return FindNotFinite(type, {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)});
}

TEST(NotFinite, FindsTheFirstOfEachKind) {
  EXPECT_TRUE(Find<float>(ElementType::kF32, {}).all_finite());
  EXPECT_TRUE(Find<float>(ElementType::kF32, {0.0f, -0.0f, 3e38f, 1e-45f}).all_finite());
  const NotFinite f32 = Find<float>(ElementType::kF32, {1, INFINITY, -INFINITY, NAN, NAN});
  EXPECT_EQ(f32.first_infinity, 1);
  EXPECT_EQ(f32.first_nan, 3);
  const NotFinite f64 = Find<double>(ElementType::kF64, {1, 2, -INFINITY});
  EXPECT_EQ(f64.first_infinity, 2);
  EXPECT_EQ(f64.first_nan, -1);
  EXPECT_FALSE(f64.all_finite());
}

TEST(NotFinite, LooksAtBothPartsOfComplexNumbers) {
  const std::vector<std::complex<float>> values = {{1, 2}, {3, 4}, {5, NAN}, {INFINITY, 0}};
  EXPECT_EQ(Find(ElementType::kC64, values).first_nan, 2);
  EXPECT_EQ(Find(ElementType::kC64, values).first_infinity, 3);
}

TEST(NotFinite, ReadsSmallFloats) {
  EXPECT_EQ(Find<uint16_t>(ElementType::kBF16, {0x3f80, 0xff80, 0x7fc0}).first_infinity, 1);
  EXPECT_EQ(Find<uint16_t>(ElementType::kBF16, {0x3f80, 0xff80, 0x7fc0}).first_nan, 2);
  EXPECT_EQ(Find<uint16_t>(ElementType::kF16, {0x3c00, 0x7bff, 0x7c00}).first_infinity, 2);
  EXPECT_EQ(Find<uint8_t>(ElementType::kF8E5M2, {0x00, 0x7c}).first_infinity, 1);
  EXPECT_EQ(Find<uint8_t>(ElementType::kF8E4M3FN, {0x7e, 0x7f}).first_nan, 1);
}

TEST(NotFinite, IntegersAreFinite) {
  EXPECT_TRUE(Find<uint32_t>(ElementType::kU32, {0x7fc00000, 0x7f800000}).all_finite());
}

}  // namespace
}  // namespace xlad::tensor
