#include "machine/llo/vector_ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace xlad::machine {
namespace {

float F(uint32_t word) { return std::bit_cast<float>(word); }
double D(uint32_t word) { return static_cast<double>(F(word)); }
int32_t S(uint32_t word) { return static_cast<int32_t>(word); }
uint32_t W(float value) { return std::bit_cast<uint32_t>(value); }
uint32_t W(double value) { return W(static_cast<float>(value)); }
uint32_t W(int32_t value) { return static_cast<uint32_t>(value); }
uint32_t W(bool value) { return value ? 1 : 0; }

float Max(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

float Sign(float x) { return std::isnan(x) || x == 0 ? x : x < 0 ? -1.0f : 1.0f; }

int32_t SaturateS32(double x) {
  if (std::isnan(x)) return 0;
  if (x >= 0x1p31) return std::numeric_limits<int32_t>::max();
  return x <= -0x1p31 ? std::numeric_limits<int32_t>::min() : static_cast<int32_t>(x);
}
uint32_t SaturateU32(double x) {
  if (std::isnan(x) || x <= 0) return 0;
  return x >= 0x1p32 ? ~uint32_t{0} : static_cast<uint32_t>(x);
}

uint32_t Divide(int32_t a, int32_t b) {
  if (b == 0) return ~uint32_t{0};
  return b == -1 ? 0 - W(a) : W(a / b);
}
uint32_t Remainder(int32_t a, int32_t b) {
  if (b == 0) return W(a);
  return b == -1 ? 0 : W(a % b);
}

uint64_t U(int64_t value) { return static_cast<uint64_t>(value); }
int64_t ScalarQuotient(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? static_cast<int64_t>(0 - U(a)) : a / b;
}
int64_t ScalarRemainder(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

// A type of floats of 8 bits: the sign, an exponent, and mantissa_bits. The numbers above `most` are infinity and NaNs.
struct Float8 {
  int mantissa_bits, bias;
  uint32_t most, overflow, nan;
};
constexpr Float8 kE4m3{3, 7, 0x7e, 0x7f, 0x7f}, kE5m2{2, 15, 0x7b, 0x7c, 0x7e};

uint32_t EncodeFloat8(const Float8& type, float value) {
  const uint32_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | type.nan;
  if (std::isinf(value)) return sign | type.overflow;
  const double magnitude = std::abs(value);
  if (magnitude == 0) return sign;
  // The number in units of the last place. All subnormal numbers have the unit of the smallest normal number.
  const int exponent = std::max(std::ilogb(magnitude), 1 - type.bias);
  const double units = std::nearbyint(std::ldexp(magnitude, type.mantissa_bits - exponent));
  // In units of the next lower exponent, the codes of normal numbers continue those of subnormal numbers.
  const int64_t code = (static_cast<int64_t>(exponent - 1 + type.bias) << type.mantissa_bits) + std::llround(units);
  return sign | (code > type.most ? type.overflow : static_cast<uint32_t>(code));
}

float DecodeFloat8(const Float8& type, uint32_t bits) {
  const uint32_t code = bits & 0x7f, mantissa = code & ((1u << type.mantissa_bits) - 1);
  const int exponent = static_cast<int>(code >> type.mantissa_bits);
  float magnitude = std::numeric_limits<float>::quiet_NaN();
  if (code == type.overflow && type.overflow != type.nan) {
    magnitude = std::numeric_limits<float>::infinity();
  } else if (code <= type.most) {
    const uint32_t units = mantissa + (exponent > 0 ? 1u << type.mantissa_bits : 0);
    magnitude = std::ldexp(static_cast<float>(units), std::max(exponent, 1) - type.bias - type.mantissa_bits);
  }
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

bool IsShift(uint32_t by) { return by < 32; }

#define XLAD_ROW(Id, expression) \
  case LloOp::k##Id:             \
    return [](uint32_t a, [[maybe_unused]] uint32_t b, [[maybe_unused]] uint32_t c) -> uint32_t { return expression; };

LloFunction FloatFunctionOf(LloOp op) {
  switch (op) {
    XLAD_ROW(FAdd, W(F(a) + F(b)))
    XLAD_ROW(FSub, W(F(a) - F(b)))
    XLAD_ROW(FMul, W(F(a) * F(b)))
    XLAD_ROW(FDiv, W(F(a) / F(b)))
    XLAD_ROW(FRem, W(std::fmod(D(a), D(b))))
    XLAD_ROW(FPow, W(std::pow(D(a), D(b))))
    XLAD_ROW(FAtan2, W(std::atan2(D(a), D(b))))
    XLAD_ROW(FMax, W(Max(F(a), F(b))))
    XLAD_ROW(FMin, W(-Max(-F(a), -F(b))))
    XLAD_ROW(FNeg, a ^ 0x80000000u)
    XLAD_ROW(FAbs, a & 0x7fffffffu)
    XLAD_ROW(FFloor, W(std::floor(F(a))))
    XLAD_ROW(FCeil, W(std::ceil(F(a))))
    XLAD_ROW(FRoundEven, W(std::nearbyint(F(a))))
    XLAD_ROW(FSign, W(Sign(F(a))))
    XLAD_ROW(FRoundBf16, W(RoundToBf16(F(a))))
    XLAD_ROW(FRoundE4m3, W(DecodeFloat8(kE4m3, EncodeFloat8(kE4m3, F(a)))))
    XLAD_ROW(FRoundE5m2, W(DecodeFloat8(kE5m2, EncodeFloat8(kE5m2, F(a)))))
    XLAD_ROW(FRoundF16, W(static_cast<float>(static_cast<_Float16>(F(a)))))
    XLAD_ROW(FIsFinite, W(static_cast<bool>(std::isfinite(F(a)))))
    XLAD_ROW(FExp, W(std::exp(D(a))))
    XLAD_ROW(FExpm1, W(std::expm1(D(a))))
    XLAD_ROW(FLog, W(std::log(D(a))))
    XLAD_ROW(FLog1p, W(std::log1p(D(a))))
    XLAD_ROW(FSqrt, W(std::sqrt(D(a))))
    XLAD_ROW(FRsqrt, W(1 / std::sqrt(D(a))))
    XLAD_ROW(FCbrt, W(std::cbrt(D(a))))
    XLAD_ROW(FTanh, W(std::tanh(D(a))))
    XLAD_ROW(FLogistic, W(1 / (1 + std::exp(-D(a)))))
    XLAD_ROW(FSin, W(std::sin(D(a))))
    XLAD_ROW(FCos, W(std::cos(D(a))))
    XLAD_ROW(FErf, W(std::erf(D(a))))
    XLAD_ROW(FEq, W(F(a) == F(b)))
    XLAD_ROW(FNe, W(F(a) != F(b)))
    XLAD_ROW(FLt, W(F(a) < F(b)))
    XLAD_ROW(FLe, W(F(a) <= F(b)))
    XLAD_ROW(FToI, W(SaturateS32(D(a))))
    XLAD_ROW(FToU, SaturateU32(D(a)))
    XLAD_ROW(IToF, W(static_cast<float>(S(a))))
    XLAD_ROW(UToF, W(static_cast<float>(a)))
    default:
      return nullptr;
  }
}

LloFunction IntegerFunctionOf(LloOp op) {
  switch (op) {
    XLAD_ROW(IAdd, a + b)
    XLAD_ROW(ISub, a - b)
    XLAD_ROW(IMul, a * b)
    XLAD_ROW(IDiv, Divide(S(a), S(b)))
    XLAD_ROW(IRem, Remainder(S(a), S(b)))
    XLAD_ROW(UDiv, b == 0 ? ~uint32_t{0} : a / b)
    XLAD_ROW(URem, b == 0 ? a : a % b)
    XLAD_ROW(IMax, S(a) > S(b) ? a : b)
    XLAD_ROW(IMin, S(a) < S(b) ? a : b)
    XLAD_ROW(UMax, a > b ? a : b)
    XLAD_ROW(UMin, a < b ? a : b)
    XLAD_ROW(IAnd, a & b)
    XLAD_ROW(IOr, a | b)
    XLAD_ROW(IXor, a ^ b)
    XLAD_ROW(IShl, IsShift(b) ? a << b : 0)
    XLAD_ROW(IShr, W(S(a) >> (IsShift(b) ? b : 31)))
    XLAD_ROW(UShr, IsShift(b) ? a >> b : 0)
    XLAD_ROW(IEq, W(a == b))
    XLAD_ROW(INe, W(a != b))
    XLAD_ROW(ILt, W(S(a) < S(b)))
    XLAD_ROW(ILe, W(S(a) <= S(b)))
    XLAD_ROW(ULt, W(a < b))
    XLAD_ROW(ULe, W(a <= b))
    XLAD_ROW(VSelect, a != 0 ? b : c)
    default:
      return nullptr;
  }
}
#undef XLAD_ROW

}  // namespace

float RoundToBf16(float value) {
  if (std::isnan(value)) return value;
  const uint32_t bits = W(value);
  return F((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u);
}

uint32_t WordOfElement(LloType type, uint32_t bits) {
  switch (type) {
    case LloType::kBf16:
      return bits << 16;
    case LloType::kF16:
      return W(static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits))));
    case LloType::kS16:
      return W(static_cast<int32_t>(static_cast<int16_t>(bits)));
    case LloType::kU16:
      return bits & 0xffff;
    case LloType::kS8:
      return W(static_cast<int32_t>(static_cast<int8_t>(bits)));
    case LloType::kU8:
      return bits & 0xff;
    case LloType::kE4m3:
      return W(DecodeFloat8(kE4m3, bits));
    case LloType::kE5m2:
      return W(DecodeFloat8(kE5m2, bits));
    default:
      return bits;
  }
}

uint32_t ElementOfWord(LloType type, uint32_t word) {
  switch (type) {
    case LloType::kBf16:
      return W(RoundToBf16(F(word))) >> 16;
    case LloType::kF16:
      return std::bit_cast<uint16_t>(static_cast<_Float16>(F(word)));
    case LloType::kS16:
    case LloType::kU16:
      return word & 0xffff;
    case LloType::kS8:
    case LloType::kU8:
      return word & 0xff;
    case LloType::kE4m3:
      return EncodeFloat8(kE4m3, F(word));
    case LloType::kE5m2:
      return EncodeFloat8(kE5m2, F(word));
    default:
      return word;
  }
}

LloFunction FunctionOf(LloOp op) {
  const LloFunction function = FloatFunctionOf(op);
  return function != nullptr ? function : IntegerFunctionOf(op);
}

int64_t WrappedSum(int64_t a, int64_t b) { return static_cast<int64_t>(U(a) + U(b)); }

int64_t ScalarResult(const LloInstruction& instruction, int64_t a, int64_t b) {
  const int64_t imm = instruction.imm;
  switch (instruction.op) {
    case LloOp::kSMov:
      return imm;
    case LloOp::kSAdd:
      return WrappedSum(a, b);
    case LloOp::kSAddI:
      return WrappedSum(a, imm);
    case LloOp::kSMulI:
      return static_cast<int64_t>(U(a) * U(imm));
    case LloOp::kSDivI:
      return ScalarQuotient(a, imm);
    case LloOp::kSRemI:
      return ScalarRemainder(a, imm);
    case LloOp::kSMinI:
      return std::min(a, imm);
    case LloOp::kSMaxI:
      return std::max(a, imm);
    case LloOp::kSRSubI:
      return static_cast<int64_t>(U(imm) - U(a));
    case LloOp::kSAndI:
      return a & imm;
    case LloOp::kSLtI:
      return a < imm ? 1 : 0;
    default:  // kSGeI
      return a >= imm ? 1 : 0;
  }
}

}  // namespace xlad::machine
