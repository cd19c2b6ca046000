// Compares the conversions of floats of 8 bits in the kernel for devices with those of tensor/small_float.h, and tests
// which reductions have a kernel.
#include "collectives/exec/device/reduce_code.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tensor/small_float.h"

namespace xlad::collectives {
namespace {

using tensor::ElementType;

constexpr ElementType kFloatsOf8Bits[] = {
    ElementType::kF8E5M2,        ElementType::kF8E4M3,     ElementType::kF8E3M4,    ElementType::kF8E4M3FN,
    ElementType::kF8E4M3B11FNUZ, ElementType::kF8E5M2FNUZ, ElementType::kF8E4M3FNUZ};

uint32_t FormatOfKernel(ElementType type) { return KernelReductionOf({type, Reduction::kSum, false})->what.format; }

TEST(ReduceKernel, DecodesAllFloatsOf8Bits) {
  for (const ElementType type : kFloatsOf8Bits) {
    const uint32_t format = FormatOfKernel(type);
    for (uint32_t code = 0; code < 256; ++code) {
      SCOPED_TRACE(testing::Message() << tensor::ToString(type) << " " << code);
      const float found = XladDecodeF8(code, format), expected = tensor::DecodeSmallFloat(type, code);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(found));
        EXPECT_EQ(XladEncodeF8(found, format), tensor::EncodeSmallFloat(type, expected));
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(expected));
      }
    }
  }
}

// The values of all codes, the midpoints between neighbors, and the floats next to these numbers. The last midpoint is
// the least value that overflows.
TEST(ReduceKernel, RoundsToFloatsOf8Bits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const ElementType type : kFloatsOf8Bits) {
    const uint32_t format = FormatOfKernel(type);
    const auto check = [&](float near) {
      for (const float magnitude : {std::nextafter(near, 0.0f), near, std::nextafter(near, kInfinity)}) {
        for (const float value : {magnitude, -magnitude}) {
          EXPECT_EQ(XladEncodeF8(value, format), tensor::EncodeSmallFloat(type, value))
              << tensor::ToString(type) << " " << value;
        }
      }
    };
    const uint32_t largest = tensor::FloatFormatOf(type)->max_finite;
    for (uint32_t code = 0; code <= largest; ++code) {
      const float value = tensor::DecodeSmallFloat(type, code);
      const float below = code == largest ? tensor::DecodeSmallFloat(type, code - 1) : value;
      const float above = code == largest ? value : tensor::DecodeSmallFloat(type, code + 1);
      check(value);
      check(value + (above - below) / 2);
    }
    const float least = std::numeric_limits<float>::denorm_min(), most = std::numeric_limits<float>::max();
    for (const float value : {least, most, kInfinity, std::numeric_limits<float>::quiet_NaN()}) check(value);
  }
}

TEST(ReduceKernel, OtherReductionsAreForTheHost) {
  EXPECT_TRUE(CheckedKernelReduction({ElementType::kC64, Reduction::kSum, false}, 2, 1).ok());
  EXPECT_TRUE(CheckedKernelReduction({ElementType::kF8E5M2, Reduction::kMax, false}, 2, 1).ok());
  const absl::Status product = CheckedKernelReduction({ElementType::kC64, Reduction::kProduct, false}, 2, 1).status();
  EXPECT_EQ(product, absl::UnimplementedError(
                         "found a reduction by product of c64, for which devices have no kernel; expected a type of at "
                         "least 8 bits other than f8e8m0fnu, and a sum if the type is complex; reduce on the host"));
  for (const ElementType type : {ElementType::kF8E8M0FNU, ElementType::kS4}) {
    EXPECT_FALSE(CheckedKernelReduction({type, Reduction::kSum, false}, 2, 1).ok()) << tensor::ToString(type);
  }
}

}  // namespace
}  // namespace xlad::collectives
