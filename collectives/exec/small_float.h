// Floating-point types below 32 bits as f32 and back, for reductions.
//
// IEEE-like encodings by parameters: bits of exponent and mantissa, bias, and what the highest exponent means.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace xlad::collectives {

enum class Specials {
  kIeee,             // Highest exponent: infinity and NaN.
  kNanOnly,          // "fn": all mantissa bits set is NaN; no infinity.
  kUnsignedZeroNan,  // "fnuz": the negative zero is NaN; no infinity.
};

template <typename Bits, int kExponentBits, int kMantissaBits, int kBias, Specials kSpecials>
struct SmallFloat {
  using Storage = Bits;
  static constexpr int kSignShift = kExponentBits + kMantissaBits;
  static constexpr uint32_t kMagnitudeMask = (uint32_t{1} << kSignShift) - 1;
  static constexpr uint32_t kMaxExponent = (uint32_t{1} << kExponentBits) - 1;
  static constexpr uint32_t kMantissaMask = (uint32_t{1} << kMantissaBits) - 1;
  static constexpr uint32_t kSign = uint32_t{1} << kSignShift;
  // Magnitude of the largest finite value and of a NaN.
  static constexpr uint32_t kMaxFinite = kSpecials == Specials::kIeee      ? (kMaxExponent << kMantissaBits) - 1
                                         : kSpecials == Specials::kNanOnly ? kMagnitudeMask - 1
                                                                           : kMagnitudeMask;

  static bool IsNan(uint32_t bits) {
    const uint32_t magnitude = bits & kMagnitudeMask;
    if (kSpecials == Specials::kUnsignedZeroNan) return bits == kSign;
    if (kSpecials == Specials::kNanOnly) return magnitude == kMagnitudeMask;
    return magnitude > (kMaxExponent << kMantissaBits);
  }

  static float ToFloat(Bits storage) {
    const uint32_t bits = storage;
    const float sign = (bits & kSign) != 0 ? -1.0f : 1.0f;
    if (IsNan(bits)) return std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
    const uint32_t exponent = (bits >> kMantissaBits) & kMaxExponent, mantissa = bits & kMantissaMask;
    if (kSpecials == Specials::kIeee && exponent == kMaxExponent) return sign * std::numeric_limits<float>::infinity();
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMantissaBits);
    return sign * std::ldexp(static_cast<float>(mantissa | (kMantissaMask + 1)),
                             static_cast<int>(exponent) - kBias - kMantissaBits);
  }

  // Nearest, ties to even. Beyond the largest value: infinity, or NaN where the type has none.
  static Bits FromFloat(float value) {
    const uint32_t sign = std::signbit(value) ? kSign : 0;
    constexpr uint32_t kNan =
        kSpecials == Specials::kUnsignedZeroNan ? kSign : kMaxFinite + 1 + (kSpecials == Specials::kIeee);
    constexpr uint32_t kOverflow = kSpecials == Specials::kIeee ? kMaxFinite + 1 : kNan;
    if (std::isnan(value)) return static_cast<Bits>(kSpecials == Specials::kIeee ? sign | QuietNan() : sign | kNan);
    const float magnitude = std::fabs(value);
    if (magnitude == 0) return static_cast<Bits>(kSpecials == Specials::kUnsignedZeroNan ? 0 : sign);
    if (std::isinf(magnitude)) return static_cast<Bits>(sign | kOverflow);
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    // Units of the last place at this size; subnormals share the smallest.
    const int unit = std::max(exponent - 1, 1 - kBias) - kMantissaBits;
    const uint32_t units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
    // A carry out of the mantissa moves into the exponent by itself.
    const uint32_t bits = units + (static_cast<uint32_t>(unit + kMantissaBits + kBias - 1) << kMantissaBits);
    if (bits > kMaxFinite) return static_cast<Bits>(sign | kOverflow);
    if (bits == 0 && kSpecials == Specials::kUnsignedZeroNan) return 0;
    return static_cast<Bits>(sign | bits);
  }

 private:
  static constexpr uint32_t QuietNan() {
    return (kMaxExponent << kMantissaBits) | (uint32_t{1} << (kMantissaBits - 1));
  }
};

// bf16 is the upper half of an f32, which is much quicker than by parameters.
struct BFloat16 {
  using Storage = uint16_t;
  static float ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  static uint16_t FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

using Float16 = SmallFloat<uint16_t, 5, 10, 15, Specials::kIeee>;
using Float8E5M2 = SmallFloat<uint8_t, 5, 2, 15, Specials::kIeee>;
using Float8E4M3 = SmallFloat<uint8_t, 4, 3, 7, Specials::kIeee>;
using Float8E3M4 = SmallFloat<uint8_t, 3, 4, 3, Specials::kIeee>;
using Float8E4M3Fn = SmallFloat<uint8_t, 4, 3, 7, Specials::kNanOnly>;
using Float8E4M3B11Fnuz = SmallFloat<uint8_t, 4, 3, 11, Specials::kUnsignedZeroNan>;
using Float8E4M3Fnuz = SmallFloat<uint8_t, 4, 3, 8, Specials::kUnsignedZeroNan>;
using Float8E5M2Fnuz = SmallFloat<uint8_t, 5, 2, 16, Specials::kUnsignedZeroNan>;

}  // namespace xlad::collectives
