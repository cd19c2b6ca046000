// Compares with the compiler's conversions: all f16 values, the f32 values halfway between adjacent f16 values, and the
// f32 values next to these.
#include "runtime/devices/cpu/half_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace xlad::runtime {
namespace {

float Plain(uint16_t bits) {
  _Float16 value;
  std::memcpy(&value, &bits, sizeof(value));
  return static_cast<float>(value);
}

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

TEST(HalfRows, WidensEveryValue) {
  constexpr int64_t kAll = 1 << 16;
  for (const int64_t step : {1, 3}) {
    std::vector<uint16_t> from(kAll * step);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint16_t>(i);
    std::vector<float> to(kAll);
    WidenHalf(from.data(), step, kAll, to.data());
    for (int64_t i = 0; i < kAll; ++i) {
      const float expected = Plain(static_cast<uint16_t>(i * step));
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(to[i])) << i;
      } else {
        ASSERT_EQ(Bits(to[i]), Bits(expected)) << i;
      }
    }
  }
}

TEST(HalfRows, RoundsToNearestEven) {
  std::vector<float> from;
  for (int i = 0; i < 1 << 16; ++i) {
    const float value = Plain(static_cast<uint16_t>(i)), next = Plain(static_cast<uint16_t>(i + 1));
    const float middle = value + (next - value) / 2;
    const float below = std::nextafter(middle, value), above = std::nextafter(middle, next);
    for (const float x : {value, below, middle, above}) from.push_back(x);
  }
  for (const float x : {1e30f, -1e30f, 65519.9f, 65520.0f, 1e-40f, 2.9e-8f}) from.push_back(x);
  std::vector<uint16_t> to(from.size());
  NarrowHalf(from.data(), std::ssize(from), to.data());
  for (size_t i = 0; i < from.size(); ++i) {
    const float expected = static_cast<float>(static_cast<_Float16>(from[i]));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(Plain(to[i]))) << from[i];
    } else {
      ASSERT_EQ(Bits(Plain(to[i])), Bits(expected)) << from[i];
    }
  }
}

// Rows whose last vector is incomplete. Elements after the row are not written.
TEST(HalfRows, ConvertsRowsOfAnyLength) {
  for (int64_t count = 0; count <= 20; ++count) {
    for (const int64_t step : {1, 3}) {
      std::vector<uint16_t> halves(static_cast<size_t>(count * step) + 1), narrowed(static_cast<size_t>(count) + 1, 77);
      for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(0x3c00 + i);
      std::vector<float> floats(static_cast<size_t>(count) + 1, -1.0f);
      WidenHalf(halves.data(), step, count, floats.data());
      NarrowHalf(floats.data(), count, narrowed.data());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(floats[i], Plain(halves[i * step])) << count << " at " << i;
        ASSERT_EQ(narrowed[i], halves[i * step]) << count << " at " << i;
      }
      EXPECT_EQ(floats[count], -1);
      EXPECT_EQ(narrowed[count], 77);
    }
  }
}

}  // namespace
}  // namespace xlad::runtime
