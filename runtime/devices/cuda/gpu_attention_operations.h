/* The operations on elements of rows of scores, for gpu_attention_kernels.c. A word is the bits of an f32, an s32, or 0
 * or 1. */
#ifndef XLAD_RUNTIME_DEVICES_CUDA_GPU_ATTENTION_OPERATIONS_H_
#define XLAD_RUNTIME_DEVICES_CUDA_GPU_ATTENTION_OPERATIONS_H_

#include "runtime/devices/cuda/gpu_attention_kernels.h"
#include "runtime/devices/cuda/kernel_support.h"

/* exp(x) = 2^n * exp(r) with |r| <= ln(2) / 2. */
INLINE float Exp(float x) {
  if (x < -104.0f) return 0;
  if (x > 89.0f) return __builtin_inff();
  const float magic = 12582912.0f; /* Adding 1.5 * 2^23 rounds to an integer. */
  const float n = (x * 1.44269504f + magic) - magic;
  const float r = __builtin_fmaf(n, 1.42860677e-6f, __builtin_fmaf(n, -0.693148613f, x));
  float y = 1.0f / 5040;
  y = __builtin_fmaf(y, r, 1.0f / 720);
  y = __builtin_fmaf(y, r, 1.0f / 120);
  y = __builtin_fmaf(y, r, 1.0f / 24);
  y = __builtin_fmaf(y, r, 1.0f / 6);
  y = __builtin_fmaf(y, r, 0.5f);
  y = __builtin_fmaf(y, r, 1.0f);
  y = __builtin_fmaf(y, r, 1.0f);
  /* Two factors, because 2^n itself may be too large or too small for a float. */
  const int whole = x == x ? (int)n : 0, half = whole / 2;
  return y * FromBits((uint32_t)(half + 127) << 23) * FromBits((uint32_t)(whole - half + 127) << 23);
}

/* log(x) = e * ln(2) + 2 * artanh((m - 1) / (m + 1)) for x = m * 2^e with m near 1. */
INLINE float Log(float x) {
  if (!(x > 0)) return x == 0 ? -__builtin_inff() : __builtin_nanf("");
  if (x > 3.4028235e38f) return x;
  const int is_small = x < 1.17549435e-38f;
  if (is_small) x *= 8388608.0f;                /* 2^23 makes a denormal number normal. */
  const uint32_t bits = ToBits(x) - 0x3f3504f3; /* The bits of sqrt(1/2). */
  const int exponent = (int)bits >> 23;
  const float m = FromBits((bits & 0x7fffff) + 0x3f3504f3);
  const float s = (m - 1) / (m + 1), z = s * s;
  float y = 2.0f / 11;
  y = __builtin_fmaf(y, z, 2.0f / 9);
  y = __builtin_fmaf(y, z, 2.0f / 7);
  y = __builtin_fmaf(y, z, 2.0f / 5);
  y = __builtin_fmaf(y, z, 2.0f / 3);
  y = s * __builtin_fmaf(y, z, 2.0f);
  return __builtin_fmaf((float)(exponent - (is_small ? 23 : 0)), 0.693147181f, y);
}

/* tanh(x) = 1 - 2 / (exp(2 x) + 1) for large |x|, and t / (t + 2) with t = exp(2 x) - 1 for small |x|. */
INLINE float Tanh(float x) {
  const float size = x < 0 ? -x : x;
  if (!(size < 0.5f)) {
    const float y = 1 - 2 / (Exp(2 * size) + 1);
    return x < 0 ? -y : y; /* A NaN stays a NaN. */
  }
  const float u = 2 * x;
  float t = 1;
  UNROLL for (int i = 12; i >= 2; --i) t = __builtin_fmaf(t, u * (1.0f / i), 1.0f);
  t *= u;
  return t / (t + 2);
}

INLINE float Maximum(float a, float b) { return a != a || a > b ? a : b != b || b > a ? b : a; }
INLINE float Minimum(float a, float b) { return a != a || a < b ? a : b != b || b < a ? b : a; }

/* A float, rounded to the type `element`. */
INLINE uint32_t RoundTo(int element, uint32_t word) {
  if (element == XLAD_BF16) return (uint32_t)ToBf16(FromBits(word)) << 16;
  return element == XLAD_F16 ? ToBits((float)(_Float16)FromBits(word)) : word;
}

INLINE uint32_t ApplyToIntegers(int opcode, uint32_t a, uint32_t b) {
  const int32_t i = (int32_t)a, j = (int32_t)b;
  switch (opcode) {
    case XLAD_ROW_AddInteger:
      return a + b;
    case XLAD_ROW_SubtractInteger:
      return a - b;
    case XLAD_ROW_MultiplyInteger:
      return a * b;
    case XLAD_ROW_EqualInteger:
      return i == j;
    case XLAD_ROW_NotEqualInteger:
      return i != j;
    case XLAD_ROW_GreaterInteger:
      return i > j;
    case XLAD_ROW_GreaterEqualInteger:
      return i >= j;
    case XLAD_ROW_LessInteger:
      return i < j;
    default:
      return i <= j;
  }
}

/* The opcodes that round are not handled here: a step rounds by XladAttentionStep.rounded_to instead. */
INLINE uint32_t Apply(int opcode, uint32_t a, uint32_t b, uint32_t c) {
  const float x = FromBits(a), y = FromBits(b);
  switch (opcode) {
    case XLAD_ROW_Copy:
      return a;
    case XLAD_ROW_Add:
      return ToBits(x + y);
    case XLAD_ROW_Subtract:
      return ToBits(x - y);
    case XLAD_ROW_Multiply:
      return ToBits(x * y);
    case XLAD_ROW_Divide:
      return ToBits(x / y);
    case XLAD_ROW_Maximum:
      return ToBits(Maximum(x, y));
    case XLAD_ROW_Minimum:
      return ToBits(Minimum(x, y));
    case XLAD_ROW_Negate:
      return a ^ 0x80000000;
    case XLAD_ROW_Abs:
      return a & 0x7fffffff;
    case XLAD_ROW_Exp:
      return ToBits(Exp(x));
    case XLAD_ROW_Tanh:
      return ToBits(Tanh(x));
    case XLAD_ROW_Log:
      return ToBits(Log(x));
    case XLAD_ROW_Select:
      return a != 0 ? b : c;
    case XLAD_ROW_And:
      return a & b;
    case XLAD_ROW_Or:
      return a | b;
    case XLAD_ROW_Not:
      return a == 0;
    case XLAD_ROW_FromInteger:
      return ToBits((float)(int32_t)a);
    case XLAD_ROW_Equal:
      return x == y;
    case XLAD_ROW_NotEqual:
      return x != y;
    case XLAD_ROW_Greater:
      return x > y;
    case XLAD_ROW_GreaterEqual:
      return x >= y;
    case XLAD_ROW_Less:
      return x < y;
    case XLAD_ROW_LessEqual:
      return x <= y;
    default:
      return ApplyToIntegers(opcode, a, b);
  }
}

#endif /* XLAD_RUNTIME_DEVICES_CUDA_GPU_ATTENTION_OPERATIONS_H_ */
