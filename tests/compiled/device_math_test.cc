// Compares the math functions of GPU code (compiler/codegen/nvptx/device_math.c), compiled for this machine, with the C
// library.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/random.h"

#define XLAD_MATH(name) device_##name
extern "C" {
#define XLAD_UNARY(name)          \
  double XLAD_MATH(name)(double); \
  float XLAD_MATH(name##f)(float);
#define XLAD_BINARY(name)                 \
  double XLAD_MATH(name)(double, double); \
  float XLAD_MATH(name##f)(float, float);
#include "tests/compiled/device_math.def"
#undef XLAD_UNARY
#undef XLAD_BINARY
}

namespace xlad {
namespace {

constexpr double kSpecial[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 0.5, 5e-324, -1e-310, 1.7e308, -1e300};

// The distance of two values in units in the last place. Two NaNs are equal.
template <typename Float, typename Integer>
uint64_t Distance(Float a, Float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : UINT64_MAX;
  const auto order = [](Float x) {
    Integer bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits < 0 ? static_cast<__int128>(std::numeric_limits<Integer>::min()) - bits : static_cast<__int128>(bits);
  };
  const __int128 difference = order(a) - order(b);
  return static_cast<uint64_t>(difference < 0 ? -difference : difference);
}

uint64_t Distance(double a, double b) { return Distance<double, int64_t>(a, b); }
uint64_t Distance(float a, float b) { return Distance<float, int32_t>(a, b); }

// Numbers of all magnitudes, most of them of common magnitudes.
double Number(Random& random, int i) {
  if (i < std::ssize(kSpecial)) return kSpecial[i];
  const uint64_t bits = random.Next();
  double any;
  std::memcpy(&any, &bits, sizeof(any));
  const double scales[] = {2, 40, 1e6};
  return i % 4 == 0 ? any : (random.Unit() - 0.5) * scales[i % 4 - 1];
}

constexpr int kCount = 20000;

template <typename Float>
void CheckUnary(const char* name, Float (*device)(Float), Float (*library)(Float), uint64_t bound) {
  const auto random = SeededRandom(1);
  for (int i = 0; i < kCount; ++i) {
    const Float x = static_cast<Float>(Number(*random, i));
    ASSERT_LE(Distance(device(x), library(x)), bound) << name << "(" << x << "): " << device(x) << ", " << library(x);
  }
}

template <typename Float>
void CheckBinary(const char* name, Float (*device)(Float, Float), Float (*library)(Float, Float), uint64_t bound) {
  const auto random = SeededRandom(1);
  constexpr int kSpecials = std::ssize(kSpecial);
  for (int i = 0; i < kCount; ++i) {
    const bool pair = i < kSpecials * kSpecials;
    const Float x = static_cast<Float>(pair ? kSpecial[i / kSpecials] : Number(*random, i));
    const int kind = kSpecials + static_cast<int>(random->Below(4));
    const Float y = static_cast<Float>(pair ? kSpecial[i % kSpecials] : Number(*random, kind));
    ASSERT_LE(Distance(device(x, y), library(x, y)), bound)
        << name << "(" << x << ", " << y << "): " << device(x, y) << ", " << library(x, y);
  }
}

TEST(DeviceMath, AgreesWithTheCLibrary) {
  constexpr uint64_t kBound = 16, kBoundF32 = 2;
#define XLAD_UNARY(name)                                             \
  CheckUnary<double>(#name, XLAD_MATH(name), ::name, kBound);        \
  CheckUnary<float>(#name "f", XLAD_MATH(name##f), ::name##f, kBoundF32);
#define XLAD_BINARY(name)                                            \
  CheckBinary<double>(#name, XLAD_MATH(name), ::name, kBound);       \
  CheckBinary<float>(#name "f", XLAD_MATH(name##f), ::name##f, kBoundF32);
#include "tests/compiled/device_math.def"
#undef XLAD_UNARY
#undef XLAD_BINARY
}

}  // namespace
}  // namespace xlad
