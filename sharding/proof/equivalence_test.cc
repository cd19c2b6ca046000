// CompareValues: which elements agree at each exactness, and what its messages show.
#include "sharding/proof/equivalence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace xlad::sharding {
namespace {

using ::testing::HasSubstr;
using tensor::ElementType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

hlo::Literal Values(const std::vector<double>& values) {
  return hlo::Literal(tensor::Array::FromValues(ElementType::kF64, {std::ssize(values)}, values));
}

bool Agree(double a, double b, Exactness exactness) {
  return CompareValues(Values({1, a}), Values({1, b}), 1e-4, exactness).ok();
}

TEST(CompareValues, AnInfinityAgreesOnlyWithItself) {
  for (const Exactness exactness : {Exactness::kBits, Exactness::kArithmetic, Exactness::kSums}) {
    for (const double infinity : {kInfinity, -kInfinity}) {
      EXPECT_TRUE(Agree(infinity, infinity, exactness));
      const double largest = std::copysign(std::numeric_limits<double>::max(), infinity);
      for (const double other : {-infinity, 0.0, 1.0, largest, kNan}) {
        EXPECT_FALSE(Agree(other, infinity, exactness)) << other << " for " << infinity;
        EXPECT_FALSE(Agree(infinity, other, exactness)) << infinity << " for " << other;
      }
    }
  }
}

TEST(CompareValues, ExactnessSaysHowRoundedValuesNansAndZerosAgree) {
  EXPECT_TRUE(Agree(1.00001, 1, Exactness::kSums));
  EXPECT_TRUE(Agree(1.00001, 1, Exactness::kArithmetic));
  EXPECT_FALSE(Agree(1.00001, 1, Exactness::kBits));
  EXPECT_FALSE(Agree(1.001, 1, Exactness::kSums));
  EXPECT_TRUE(Agree(-0.0, 0.0, Exactness::kSums));
  EXPECT_FALSE(Agree(-0.0, 0.0, Exactness::kArithmetic));
  EXPECT_TRUE(Agree(kNan, std::nan("7"), Exactness::kArithmetic));
  EXPECT_FALSE(Agree(kNan, std::nan("7"), Exactness::kBits));
}

TEST(CompareValues, MessagesShowWhatDiffers) {
  const auto complex = [](float imaginary) {
    return hlo::Literal(tensor::Array::FromValues<float>(ElementType::kC64, {1}, {1, imaginary}));
  };
  EXPECT_THAT(CompareValues(complex(2), complex(3), 1e-4).message(),
              HasSubstr("result 0, element [0]: partitioned (1, 2), source (1, 3)"));
  EXPECT_THAT(CompareValues(Values({0, kNan}), Values({0, std::nan("7")}), 1e-4, Exactness::kBits).message(),
              HasSubstr("element [1]: partitioned 0x7ff8000000000000, source 0x7ff8000000000007"));
  const auto bytes = [](int8_t value) {
    return hlo::Literal(tensor::Array::FromValues<int8_t>(ElementType::kS8, {1}, {value}));
  };
  EXPECT_THAT(CompareValues(bytes(-1), bytes(16), 1e-4).message(), HasSubstr("partitioned -1, source 16"));
}

}  // namespace
}  // namespace xlad::sharding
