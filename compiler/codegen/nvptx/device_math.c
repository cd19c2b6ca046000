/* Elementary functions of f64 for GPU code, because a GPU has no C math library. Functions of f32 are computed in f64.
 * The build compiles this file to LLVM IR for NVPTX, and a module of kernels gets the definitions of the functions that
 * it calls (device_math.h). tests/compiled also compiles this file for the CPU and compares each function with the C
 * library. Results of f64 agree within 16 units in the last place, and those of f32 within 2. Infinities, NaNs, signed
 * zeros and denormal numbers are treated as in the C library.
 *
 * Sources of the methods: Muller et al., "Handbook of Floating-Point Arithmetic" (double-double arithmetic), Muller,
 * "Elementary Functions" (ranges and identities), Payne and Hanek 1983 (reduction of angles).
 */
#ifdef XLAD_MATH_FOR_TESTS
#define XLAD_MATH(name) device_##name
#else
#define XLAD_MATH(name) name
#endif

typedef unsigned long long u64;
typedef unsigned __int128 u128;

#define INFINITE __builtin_inf()
#define NOT_A_NUMBER __builtin_nan("")
#define INLINE static inline __attribute__((always_inline))

static const double kLn2High = 0x1.62e42fefa3800p-1; /* It has 42 bits, so that products with exponents are exact. */
static const double kLn2Low = 0x1.ef35793c76730p-45;
static const double kPi = 0x1.921fb54442d18p+1, kHalfPi = 0x1.921fb54442d18p+0;

INLINE u64 Bits(double x) { return __builtin_bit_cast(u64, x); }
INLINE double FromBits(u64 bits) { return __builtin_bit_cast(double, bits); }
INLINE double Fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
INLINE double Abs(double x) { return __builtin_fabs(x); }
INLINE double Sqrt(double x) { return __builtin_sqrt(x); }
INLINE double WithSign(double size, double sign) { return __builtin_copysign(size, sign); }
INLINE double PowerOfTwo(int n) { return FromBits((u64)(n + 1023) << 52); } /* -1022 <= n <= 1023 */

/* c[0] + c[1] x + ... */
INLINE double Polynomial(double x, const double* c, int count) {
  double sum = c[count - 1];
#pragma unroll
  for (int i = count - 2; i >= 0; --i) sum = Fma(sum, x, c[i]);
  return sum;
}

/* exp(x) for a finite or infinite x. */
static double Exp(double x) {
  if (x > 710) x = 710;
  if (x < -746) x = -746;
  const double n = __builtin_rint(x * 0x1.71547652b82fep+0);
  const double r = Fma(-n, kLn2Low, Fma(-n, kLn2High, x));
  static const double c[] = {1.,           1.,           1. / 2,        1. / 6,         1. / 24,
                             1. / 120,     1. / 720,     1. / 5040,     1. / 40320,     1. / 362880,
                             1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800.};
  const int half = (int)n / 2;
  return Polynomial(r, c, 14) * PowerOfTwo(half) * PowerOfTwo((int)n - half);
}

double XLAD_MATH(exp)(double x) { return x != x ? x : Exp(x); }

double XLAD_MATH(expm1)(double x) {
  if (x != x || x == 0) return x;
  if (Abs(x) >= 0.5) return Exp(x) - 1;
  static const double c[] = {1.,          1. / 2,       1. / 6,         1. / 24,         1. / 120,       1. / 720,
                             1. / 5040,   1. / 40320,   1. / 362880,    1. / 3628800,    1. / 39916800,  1. / 479001600,
                             1. / 6227020800., 1. / 87178291200., 1. / 1307674368000., 1. / 20922789888000.};
  return x * Polynomial(x, c, 16);
}

/* A number that is represented as the sum of two numbers (double-double). */
typedef struct {
  double high, low;
} Pair;

INLINE Pair Sum(double a, double b) {
  const double sum = a + b, part = sum - a;
  return (Pair){sum, (a - (sum - part)) + (b - part)};
}

/* log(x) for a finite x > 0. With m = (1 + s) / (1 - s), log m = 2 s + 2 s^3 / 3 + 2 s^5 / 5 + ... */
static Pair LogPair(double x) {
  int exponent = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    exponent = -54;
  }
  const u64 offset = Bits(x) - 0x3fe6a09e667f3bcdULL; /* sqrt(1/2) */
  exponent += (int)((long long)offset >> 52);
  const double m = FromBits(Bits(x) - (offset & 0xfff0000000000000ULL));
  const double f = m - 1, below = m + 1, lost = m - (below - 1);
  const double s = f / below;
  const double rest = (Fma(-s, below, f) - s * lost) / below;
  static const double c[] = {2. / 3,  2. / 5,  2. / 7,  2. / 9,  2. / 11, 2. / 13,
                             2. / 15, 2. / 17, 2. / 19, 2. / 21, 2. / 23};
  const double z = s * s;
  const double tail = s * z * Polynomial(z, c, 11);
  const Pair sum = Sum(exponent * kLn2High, 2 * s);
  const Pair total = Sum(sum.high, tail);
  return (Pair){total.high, total.low + (sum.low + Fma(exponent, kLn2Low, 2 * rest))};
}

static double Log(double x) {
  if (x != x || x < 0) return NOT_A_NUMBER;
  if (x == 0) return -INFINITE;
  if (x == INFINITE) return x;
  const Pair log = LogPair(x);
  return log.high + log.low;
}

double XLAD_MATH(log)(double x) { return Log(x); }

double XLAD_MATH(log1p)(double x) {
  if (x == 0 || x == INFINITE) return x;
  const double u = 1 + x;
  if (!(u > 0)) return Log(u);
  /* log(1 + x) = log(u) + (1 + x - u) / u, up to the square of the second term. */
  const Pair sum = Sum(1, x), log = LogPair(u);
  return log.high + (log.low + sum.low / u);
}

double XLAD_MATH(tanh)(double x) {
  const double size = Abs(x);
  if (!(size < 22)) return x != x ? x : WithSign(1, x);
  const double grown = XLAD_MATH(expm1)(2 * size);
  return WithSign(grown / (grown + 2), x);
}

/* e^size / 2, which overflows only if the result overflows. */
static double HalfExp(double size) {
  const double root = Exp(size / 2);
  return 0.5 * root * root;
}

double XLAD_MATH(sinh)(double x) {
  const double size = Abs(x);
  if (x != x || x == 0) return x;
  if (size > 40) return WithSign(HalfExp(size), x);
  const double grown = XLAD_MATH(expm1)(size);
  return WithSign(0.5 * (grown + grown / (grown + 1)), x);
}

double XLAD_MATH(cosh)(double x) {
  const double size = Abs(x);
  if (x != x) return x;
  if (size > 40) return HalfExp(size);
  const double grown = Exp(size);
  return 0.5 * (grown + 1 / grown);
}

double XLAD_MATH(asinh)(double x) {
  const double size = Abs(x);
  if (!(size < INFINITE) || x == 0) return x;
  if (size > 0x1p28) return WithSign(Log(size) + 0x1.62e42fefa39efp-1, x);
  const double square = size * size;
  return WithSign(XLAD_MATH(log1p)(size + square / (1 + Sqrt(1 + square))), x);
}

double XLAD_MATH(acosh)(double x) {
  if (!(x >= 1)) return NOT_A_NUMBER;
  if (x > 0x1p28) return Log(x) + 0x1.62e42fefa39efp-1;
  const double above = x - 1;
  return XLAD_MATH(log1p)(above + Sqrt(2 * above + above * above));
}

double XLAD_MATH(atanh)(double x) {
  const double size = Abs(x);
  if (x != x || x == 0) return x;
  return WithSign(0.5 * XLAD_MATH(log1p)(2 * size / (1 - size)), x);
}

/* atan(x) for 0 <= x <= 1. */
static double AtanUnit(double x) {
  const int shift = x > 0x1.a827999fcef32p-2; /* tan(pi/8) */
  const double r = shift ? (x - 1) / (x + 1) : x;
  const double z = r * r;
  double sum = 0;
#pragma unroll
  for (int k = 22; k > 0; --k) sum = Fma(sum, z, (k % 2 != 0 ? -1. : 1.) / (2 * k + 1));
  sum = Fma(r * z, sum, r);
  return shift ? kPi / 4 + (sum + 0x1.1a62633145c07p-55) : sum;
}

static double Atan2(double y, double x) {
  if (x != x || y != y) return NOT_A_NUMBER;
  const double a = Abs(y), b = Abs(x);
  double angle = 0;
  if (a == b) {
    angle = a == 0 ? 0 : kPi / 4;
  } else {
    angle = a < b ? AtanUnit(a / b) : kHalfPi - (AtanUnit(b / a) - 0x1.1a62633145c07p-54);
  }
  if ((Bits(x) >> 63) != 0) angle = kPi - (angle - 0x1.1a62633145c07p-53);
  return WithSign(angle, y);
}

double XLAD_MATH(atan2)(double y, double x) { return Atan2(y, x); }
double XLAD_MATH(atan)(double x) { return Atan2(x, 1); }
double XLAD_MATH(asin)(double x) { return Atan2(x, Sqrt((1 - x) * (1 + x))); }
double XLAD_MATH(acos)(double x) { return 2 * Atan2(Sqrt(1 - x), Sqrt(1 + x)); }

double XLAD_MATH(cbrt)(double x) {
  const double size = Abs(x);
  if (!(size < INFINITE) || size == 0) return x;
  /* The arguments are scaled, so that no intermediate result is denormal. */
  const double scaled = size < 0x1p-900 ? size * 0x1p+300 : size;
  double root = Exp(Log(scaled) / 3);
  root = root - (root - scaled / (root * root)) / 3;
  return WithSign(size < 0x1p-900 ? root * 0x1p-100 : root, x);
}

/* e^(-x^2) */
static double Gaussian(double x) {
  const double square = x * x;
  return Exp(-square) * (1 - Fma(x, x, -square));
}

/* 1 - erf(x) = e^(-x^2) / sqrt(pi) / (x + 1/2 / (x + 2/2 / (x + 3/2 / ...))), for 1.1 < x < 30. */
static double ErfTail(double x) {
  double below = x;
  for (int k = 150; k > 0; --k) below = x + 0.5 * k / below;
  return Gaussian(x) * 0x1.20dd750429b6dp-1 / below;
}

/* erf(x) = 2 / sqrt(pi) e^(-x^2) times the sum of 2^n x^(2n+1) / (1 3 5 ... (2n+1)), whose terms are all positive. */
double XLAD_MATH(erf)(double x) {
  const double size = Abs(x);
  if (x != x || x == 0) return x;
  if (size >= 6) return WithSign(1, x);
  if (size > 1.25) return WithSign(1 - ErfTail(size), x);
  const double square = size * size;
  double term = size, sum = size;
  for (int n = 1; n < 100 && term > 0x1p-60 * sum; ++n) {
    term *= 2 * square / (2 * n + 1);
    sum += term;
  }
  return WithSign(0x1.20dd750429b6dp+0 * sum * Gaussian(size), x);
}

/* The bits of 2 / pi after 64 zeros. */
static const u64 kTwoOverPi[] = {
    0,
    0xa2f9836e4e441529ULL, 0xfc2757d1f534ddc0ULL, 0xdb6295993c439041ULL, 0xfe5163abdebbc561ULL,
    0xb7246e3a424dd2e0ULL, 0x06492eea09d1921cULL, 0xfe1deb1cb129a73eULL, 0xe88235f52ebb4484ULL,
    0xe99c7026b45f7e41ULL, 0x3991d639835339f4ULL, 0x9c845f8bbdf9283bULL, 0x1ff897ffde05980fULL,
    0xef2f118b5a0a6d1fULL, 0x6d367ecf27cb09b7ULL, 0x4f463f669e5fea2dULL, 0x7527bac7ebe5f17bULL,
    0x3d0739f78a5292eaULL, 0x6bfb5fb11f8d5d08ULL, 0x56033046fc7b6babULL, 0xf0cfbc209af4361dULL,
};

/* x = quadrant pi / 2 + rest for x >= 1/2, with -pi/4 <= rest <= pi/4. */
static double ReduceAngle(double x, int* quadrant) {
  const u64 m = (Bits(x) & 0xfffffffffffffULL) | 0x10000000000000ULL;
  const int exponent = (int)(Bits(x) >> 52) - 1075;
  /* x = m 2^exponent. Bits of 2 / pi before this one contribute multiples of four quadrants. */
  const int first = exponent - 2 + 64;
  const int word = first / 64, shift = first % 64;
  u64 v[3];
  for (int i = 0; i < 3; ++i) {
    v[i] = kTwoOverPi[word + i] << shift;
    if (shift != 0) v[i] |= kTwoOverPi[word + i + 1] >> (64 - shift);
  }
  const u128 low = (u128)m * v[2];
  const u128 middle = (u128)m * v[1] + (u64)(low >> 64);
  const u64 high = m * v[0] + (u64)(middle >> 64);
  const u128 turns = (u128)high << 64 | (u64)middle; /* In quarter turns, times 2^126. */
  u128 rest = turns << 2 | (u64)low >> 62;
  *quadrant = (int)(high >> 62);
  const int negative = (int)(rest >> 127);
  if (negative) {
    rest = -rest;
    ++*quadrant;
  }
  const double size = (double)(u64)(rest >> 64) * 0x1p-64 + (double)(u64)rest * 0x1p-128;
  return (negative ? -size : size) * kHalfPi;
}

static double SineOf(double r) {
  static const double c[] = {-1. / 6,          1. / 120,           -1. / 5040,            1. / 362880,
                             -1. / 39916800,   1. / 6227020800.,   -1. / 1307674368000.,  1. / 355687428096000.};
  const double z = r * r;
  return Fma(r * z, Polynomial(z, c, 8), r);
}

static double CosineOf(double r) {
  static const double c[] = {1. / 24,          -1. / 720,           1. / 40320,           -1. / 3628800,
                             1. / 479001600,   -1. / 87178291200.,  1. / 20922789888000., -1. / 6402373705728000.};
  const double z = r * r;
  return 1 - (0.5 * z - z * z * Polynomial(z, c, 8));
}

/* sin(x + turns pi / 2) */
static double Sine(double x, int turns) {
  if (!(Abs(x) < INFINITE)) return NOT_A_NUMBER;
  int quadrant = 0;
  double r = Abs(x) < 0.75 ? Abs(x) : ReduceAngle(Abs(x), &quadrant);
  if (x < 0) {
    r = -r;
    quadrant = -quadrant;
  }
  quadrant = (quadrant + turns) & 3;
  const double size = (quadrant & 1) != 0 ? CosineOf(r) : SineOf(r);
  return (quadrant & 2) != 0 ? -size : size;
}

double XLAD_MATH(sin)(double x) { return x == 0 ? x : Sine(x, 0); }
double XLAD_MATH(cos)(double x) { return Sine(x, 1); }
double XLAD_MATH(tan)(double x) { return x == 0 ? x : Sine(x, 0) / Sine(x, 1); }

static const u64 kHidden = 0x10000000000000ULL;

/* Replaces the bits of a positive number by its significand with the leading bit, and returns the exponent's bits. */
INLINE int Normalize(u64* bits) {
  int exponent = (int)(*bits >> 52);
  *bits &= kHidden - 1;
  if (exponent != 0) *bits |= kHidden;
  else exponent = 1;
  for (; *bits < kHidden; --exponent) *bits <<= 1;
  return exponent;
}

double XLAD_MATH(fmod)(double x, double y) {
  const u64 sign = Bits(x) & 0x8000000000000000ULL;
  u64 a = Bits(x) ^ sign;
  u64 b = Bits(Abs(y));
  if (y == 0 || y != y || !(Abs(x) < INFINITE)) return NOT_A_NUMBER;
  if (a < b) return x;
  int ea = Normalize(&a), eb = Normalize(&b);
  for (; ea > eb; --ea) {
    if (a >= b) a -= b;
    a <<= 1;
  }
  if (a >= b) a -= b;
  if (a == 0) return FromBits(sign);
  for (; a < kHidden && ea > 1; --ea) a <<= 1;
  if (ea < 1) a >>= 1 - ea; /* The shift is exact: a is a multiple of the smallest number. */
  return FromBits(sign | (ea < 1 || a < kHidden ? a : (a ^ kHidden) | (u64)ea << 52));
}

double XLAD_MATH(hypot)(double x, double y) {
  double a = Abs(x), b = Abs(y);
  if (a == INFINITE || b == INFINITE) return INFINITE;
  if (x != x || y != y) return NOT_A_NUMBER;
  if (a < b) {
    const double swap = a;
    a = b;
    b = swap;
  }
  if (b == 0) return a;
  /* The arguments are scaled by a power of two, so that squares neither overflow nor underflow. */
  const double scale = a > 0x1p+500 ? 0x1p-600 : a < 0x1p-400 ? 0x1p+600 : 1;
  a *= scale;
  b *= scale;
  return Sqrt(Fma(a, a, b * b)) / scale;
}

double XLAD_MATH(pow)(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (x != x || y != y) return NOT_A_NUMBER;
  const double size = Abs(x);
  const int is_whole = __builtin_floor(y) == y;
  const int is_odd = is_whole && Abs(y) < 0x1p53 && __builtin_floor(y / 2) != y / 2;
  if (Abs(y) == INFINITE) return size == 1 ? 1 : (size > 1) == (y > 0) ? INFINITE : 0;
  double result;
  if (size == 0 || size == INFINITE) {
    result = (size == 0) == (y > 0) ? 0 : INFINITE;
  } else {
    if (x < 0 && !is_whole) return NOT_A_NUMBER;
    const Pair log = LogPair(size);
    const double high = y * log.high;
    const double low = Fma(y, log.high, -high) + y * log.low;
    if (!(Abs(high) < 800)) {
      result = high > 0 ? INFINITE : 0;
    } else {
      const double power = Exp(high);
      result = power < INFINITE ? Fma(power, low, power) : power;
    }
  }
  return is_odd ? WithSign(result, x) : result;
}

#define UNARY(name) \
  float XLAD_MATH(name##f)(float x) { return (float)XLAD_MATH(name)(x); }
#define BINARY(name) \
  float XLAD_MATH(name##f)(float x, float y) { return (float)XLAD_MATH(name)(x, y); }

#define XLAD_C_MATH(opcode, types, function) UNARY(function)
#include "hlo/c_math.def"
BINARY(atan2)
BINARY(fmod)
BINARY(hypot)
BINARY(pow)
