// The loops of attention_kernels.h, compiled for several instruction sets by Highway (github.com/google/highway), which
// chooses one when the program runs.
#include "runtime/devices/cpu/attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/devices/cpu/attention_kernels.cc"
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace xlad::runtime {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Integers = hn::ScalableTag<int32_t>;
using Vector = hn::Vec<Floats>;
constexpr int64_t kLanes = hn::MaxLanes(Floats());
constexpr int64_t kPanel = 2 * kLanes;
// Each row has two vectors of accumulators. With 32 registers, twelve rows leave eight registers for the operands.
constexpr int kMaxRows = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 12 : 6;
// The number of rows of b that are multiplied with all rows of a before the next rows of b. A panel of these rows fits
// into the first-level cache.
constexpr int64_t kDepth = 256;

// The product of kRows rows of a and one panel of b, or only the panel's first half if kHalf. Ignores m and n. One
// pointer serves three rows of a, to save registers.
template <int kRows, bool kHalf>
HWY_INLINE void MultiplyRows(const TileProduct& p) {
  const Floats d;
  constexpr int kGroups = (kRows + 2) / 3;
  Vector left[kRows], right[kRows];
  const float* rows[kGroups];
#pragma clang loop unroll(full)
  for (int g = 0; g < kGroups; ++g) rows[g] = p.a + 3 * g * p.a_row;
#pragma clang loop unroll(full)
  for (int r = 0; r < kRows; ++r) {
    left[r] = p.add ? hn::LoadU(d, p.c + r * p.c_row) : hn::Zero(d);
    if (!kHalf) right[r] = p.add ? hn::LoadU(d, p.c + r * p.c_row + kLanes) : hn::Zero(d);
  }
  const int64_t a_row = p.a_row, a_depth = p.a_depth;
  const float* b = p.b;
  for (int64_t l = 0; l < p.k; ++l, b += p.b_row) {
    const Vector b0 = hn::LoadU(d, b), b1 = kHalf ? b0 : hn::LoadU(d, b + kLanes);
#pragma clang loop unroll(full)
    for (int r = 0; r < kRows; ++r) {
      const Vector x = hn::Set(d, rows[r / 3][(r % 3) * a_row]);
      left[r] = hn::MulAdd(x, b0, left[r]);
      if (!kHalf) right[r] = hn::MulAdd(x, b1, right[r]);
    }
#pragma clang loop unroll(full)
    for (int g = 0; g < kGroups; ++g) rows[g] += a_depth;
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(left[r], d, p.c + r * p.c_row);
    if (!kHalf) hn::StoreU(right[r], d, p.c + r * p.c_row + kLanes);
  }
}

// Calls MultiplyRows for p.m rows, 1 <= p.m <= kMaxRows.
template <bool kHalf, int kRows = kMaxRows>
HWY_INLINE void MultiplySome(const TileProduct& p) {
  if constexpr (kRows > 0) {
    if (p.m == kRows) return MultiplyRows<kRows, kHalf>(p);
    return MultiplySome<kHalf, kRows - 1>(p);
  }
}

// The rows are divided into groups of nearly equal size, because a group of few rows does not hide the latency of the
// multiplications.
void Multiply(const TileProduct& p) {
  TileProduct part = p;
  const int64_t groups = (p.m + kMaxRows - 1) / kMaxRows, rows = groups > 0 ? (p.m + groups - 1) / groups : 1;
  for (int64_t j = 0; j < p.n; j += kPanel) {
    int64_t l = 0;
    do {  // A product over no elements is zero.
      part.k = std::min(kDepth, p.k - l);
      part.b = p.b + (j / kPanel) * p.b_panel + l * p.b_row;
      part.add = p.add || l > 0;
      for (int64_t i = 0; i < p.m; i += rows) {
        part.m = std::min(rows, p.m - i);
        part.a = p.a + i * p.a_row + l * p.a_depth;
        part.c = p.c + i * p.c_row + j;
        if (p.n - j > kLanes) {
          MultiplySome<false>(part);
        } else {
          MultiplySome<true>(part);
        }
      }
      l += part.k;
    } while (l < p.k);
  }
}

template <typename F>
HWY_INLINE void Unary(const RowOperation& o, int64_t count, const F& f) {
  const Floats d;
  for (int64_t r = 0; r < o.rows; ++r) {
    const float* x = o.inputs[0].at + r * o.inputs[0].stride;
    float* result = o.result + r * o.result_stride;
    for (int64_t i = 0; i < count; i += kLanes) hn::StoreU(f(hn::LoadU(d, x + i)), d, result + i);
  }
}

template <typename F>
HWY_INLINE void Binary(const RowOperation& o, int64_t count, const F& f) {
  const Floats d;
  for (int64_t r = 0; r < o.rows; ++r) {
    const float* x = o.inputs[0].at + r * o.inputs[0].stride;
    const float* y = o.inputs[1].at + r * o.inputs[1].stride;
    float* result = o.result + r * o.result_stride;
    if (o.inputs[0].narrow) {
      const Vector same = hn::Set(d, *x);
      for (int64_t i = 0; i < count; i += kLanes) hn::StoreU(f(same, hn::LoadU(d, y + i)), d, result + i);
    } else if (o.inputs[1].narrow) {
      const Vector same = hn::Set(d, *y);
      for (int64_t i = 0; i < count; i += kLanes) hn::StoreU(f(hn::LoadU(d, x + i), same), d, result + i);
    } else {
      for (int64_t i = 0; i < count; i += kLanes) {
        hn::StoreU(f(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, result + i);
      }
    }
  }
}

template <typename F>
HWY_INLINE void BinaryInteger(const RowOperation& o, int64_t count, const F& f) {
  Binary(o, count, [&](Vector x, Vector y) HWY_ATTR {
    const Integers i;
    return hn::BitCast(Floats(), f(hn::BitCast(i, x), hn::BitCast(i, y)));
  });
}

// The integer 1 in the lanes whose mask is set, 0 in the others.
template <typename M>
HWY_INLINE hn::Vec<Integers> OneWhere(M mask) {
  const Integers i;
  return hn::IfThenElseZero(hn::RebindMask(i, mask), hn::Set(i, 1));
}

template <typename F>
HWY_INLINE void Compare(const RowOperation& o, int64_t count, const F& f) {
  Binary(o, count, [&](Vector x, Vector y) HWY_ATTR { return hn::BitCast(Floats(), OneWhere(f(x, y))); });
}
template <typename F>
HWY_INLINE void CompareInteger(const RowOperation& o, int64_t count, const F& f) {
  BinaryInteger(o, count, [&](auto x, auto y) HWY_ATTR { return OneWhere(f(x, y)); });
}

// An input of an operation: a row, or one element for all columns.
template <bool kNarrow>
HWY_INLINE Vector At(const float* row, int64_t i) {
  return kNarrow ? hn::Set(Floats(), *row) : hn::LoadU(Floats(), row + i);
}

template <bool kNarrowCondition, bool kNarrowYes, bool kNarrowNo>
void SelectAs(const RowOperation& o, int64_t count) {
  const Floats d;
  const Integers integers;
  for (int64_t r = 0; r < o.rows; ++r) {
    const float* condition = o.inputs[0].at + r * o.inputs[0].stride;
    const float* yes = o.inputs[1].at + r * o.inputs[1].stride;
    const float* no = o.inputs[2].at + r * o.inputs[2].stride;
    float* result = o.result + r * o.result_stride;
    for (int64_t i = 0; i < count; i += kLanes) {
      const auto mask = hn::Ne(hn::BitCast(integers, At<kNarrowCondition>(condition, i)), hn::Zero(integers));
      hn::StoreU(hn::IfThenElse(hn::RebindMask(d, mask), At<kNarrowYes>(yes, i), At<kNarrowNo>(no, i)), d, result + i);
    }
  }
}

void Select(const RowOperation& o, int64_t count) {
  const int narrow = (o.inputs[0].narrow ? 4 : 0) + (o.inputs[1].narrow ? 2 : 0) + (o.inputs[2].narrow ? 1 : 0);
  switch (narrow) {
    case 0: return SelectAs<false, false, false>(o, count);
    case 1: return SelectAs<false, false, true>(o, count);
    case 2: return SelectAs<false, true, false>(o, count);
    case 3: return SelectAs<false, true, true>(o, count);
    case 4: return SelectAs<true, false, false>(o, count);
    case 5: return SelectAs<true, false, true>(o, count);
    case 6: return SelectAs<true, true, false>(o, count);
    default: return SelectAs<true, true, true>(o, count);
  }
}

// If one operand is NaN, the result of the minimum and maximum instructions of x86 depends on the order of the
// operands, so NaN is chosen explicitly.
HWY_INLINE Vector Larger(Vector x, Vector y) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenElse(hn::IsNaN(y), y, hn::Max(x, y)));
}
HWY_INLINE Vector Smaller(Vector x, Vector y) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenElse(hn::IsNaN(y), y, hn::Min(x, y)));
}

// e^x = 2^n e^r with n = round(x / ln 2); e^r by its Taylor polynomial of degree 7, whose error for |r| <= ln 2 / 2 is
// below 6e-9. Results below the smallest normal number are zero.
HWY_INLINE Vector Exponential(Vector x) {
  const Floats d;
  const Integers i;
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504f)));
  const Vector whole = hn::ConvertTo(d, n);
  // ln 2 in two parts; the first has zeros at its end, so that its product with n is exact.
  Vector r = hn::NegMulAdd(whole, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(whole, hn::Set(d, -2.12194440e-4f), r);
  Vector p = hn::Set(d, 1.0f / 5040);
  for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    p = hn::MulAdd(p, r, hn::Set(d, c));
  }
  p = hn::BitCast(d, hn::Add(hn::BitCast(i, p), hn::ShiftLeft<23>(n)));
  p = hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.72283f)), hn::Set(d, std::numeric_limits<float>::infinity()), p);
  p = hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -87.33654f)), p);
  return hn::IfThenElse(hn::IsNaN(x), x, p);
}

HWY_INLINE Vector RoundToBf16(Vector x) {
  const Integers i;
  const auto bits = hn::BitCast(i, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(i, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(i, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(i, 0x400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(i, hn::IsNaN(x)), quiet, rounded);
  return hn::BitCast(Floats(), hn::And(chosen, hn::Set(i, ~0xffff)));
}

HWY_INLINE Vector RoundToF16(Vector x) {
  const Floats d;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON  // These have conversion instructions.
  return hn::PromoteTo(d, hn::DemoteTo(hn::Rebind<hwy::float16_t, Floats>(), x));
#else
  const Integers i;
  const auto bits = hn::BitCast(i, x);
  const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(i, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(i, 0xfff)));
  const auto quiet = hn::Or(bits, hn::Set(i, 0x400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(i, hn::IsNaN(x)), quiet, rounded);
  const Vector normal = hn::BitCast(d, hn::And(chosen, hn::Set(i, ~0x1fff)));
  // The last place of 0.5 is 2^-24, as in a subnormal f16.
  const Vector size = hn::Abs(x), half = hn::Set(d, 0.5f);
  const Vector subnormal = hn::CopySign(hn::Sub(hn::Add(size, half), half), x);
  const Vector infinity = hn::CopySign(hn::Set(d, std::numeric_limits<float>::infinity()), x);
  const Vector finite = hn::IfThenElse(hn::Lt(size, hn::Set(d, 0x1p-14f)), subnormal, normal);
  return hn::IfThenElse(hn::Ge(size, hn::Set(d, 65520.0f)), infinity, finite);
#endif
}

// Division of a row by one number is a multiplication by its reciprocal, unless the reciprocal is not a normal number.
void Divide(const RowOperation& o, int64_t count) {
  const auto divide = [](Vector x, Vector y) HWY_ATTR { return hn::Div(x, y); };
  if (!o.inputs[1].narrow || o.inputs[0].narrow) return Binary(o, count, divide);
  for (int64_t r = 0; r < o.rows; ++r) {
    RowOperation row = o;
    for (RowInput& input : row.inputs) input.at += r * input.stride;
    row.result += r * o.result_stride;
    row.rows = 1;
    const float reciprocal = 1 / *row.inputs[1].at;
    if (std::isnormal(reciprocal)) {
      const Vector factor = hn::Set(Floats(), reciprocal);
      Unary(row, count, [&](Vector x) HWY_ATTR { return hn::Mul(x, factor); });
    } else {
      Binary(row, count, divide);
    }
  }
}

void ApplyInteger(const RowOperation& o, int64_t count) {
  switch (o.opcode) {
    case RowOpcode::kAnd:
      return BinaryInteger(o, count, [](auto x, auto y) HWY_ATTR { return hn::And(x, y); });
    case RowOpcode::kOr:
      return BinaryInteger(o, count, [](auto x, auto y) HWY_ATTR { return hn::Or(x, y); });
    case RowOpcode::kAddInteger:
      return BinaryInteger(o, count, [](auto x, auto y) HWY_ATTR { return hn::Add(x, y); });
    case RowOpcode::kSubtractInteger:
      return BinaryInteger(o, count, [](auto x, auto y) HWY_ATTR { return hn::Sub(x, y); });
    case RowOpcode::kMultiplyInteger:
      return BinaryInteger(o, count, [](auto x, auto y) HWY_ATTR { return hn::Mul(x, y); });
    case RowOpcode::kEqualInteger:
      return CompareInteger(o, count, [](auto x, auto y) HWY_ATTR { return hn::Eq(x, y); });
    case RowOpcode::kNotEqualInteger:
      return CompareInteger(o, count, [](auto x, auto y) HWY_ATTR { return hn::Ne(x, y); });
    case RowOpcode::kGreaterInteger:
      return CompareInteger(o, count, [](auto x, auto y) HWY_ATTR { return hn::Gt(x, y); });
    case RowOpcode::kGreaterEqualInteger:
      return CompareInteger(o, count, [](auto x, auto y) HWY_ATTR { return hn::Not(hn::Lt(x, y)); });
    case RowOpcode::kLessInteger:
      return CompareInteger(o, count, [](auto x, auto y) HWY_ATTR { return hn::Lt(x, y); });
    case RowOpcode::kLessEqualInteger:
      return CompareInteger(o, count, [](auto x, auto y) HWY_ATTR { return hn::Not(hn::Gt(x, y)); });
    default:
      return;
  }
}

void ApplyComparison(const RowOperation& o, int64_t count) {
  switch (o.opcode) {
    case RowOpcode::kEqual:
      return Compare(o, count, [](Vector x, Vector y) HWY_ATTR { return hn::Eq(x, y); });
    case RowOpcode::kNotEqual:
      return Compare(o, count, [](Vector x, Vector y) HWY_ATTR { return hn::Ne(x, y); });
    case RowOpcode::kGreater:
      return Compare(o, count, [](Vector x, Vector y) HWY_ATTR { return hn::Gt(x, y); });
    case RowOpcode::kGreaterEqual:
      return Compare(o, count, [](Vector x, Vector y) HWY_ATTR { return hn::Ge(x, y); });
    case RowOpcode::kLess:
      return Compare(o, count, [](Vector x, Vector y) HWY_ATTR { return hn::Lt(x, y); });
    case RowOpcode::kLessEqual:
      return Compare(o, count, [](Vector x, Vector y) HWY_ATTR { return hn::Le(x, y); });
    default:
      return ApplyInteger(o, count);
  }
}

void ApplyUnary(const RowOperation& o, int64_t count) {
  const Floats d;
  switch (o.opcode) {
    case RowOpcode::kCopy:
      return Unary(o, count, [](Vector x) HWY_ATTR { return x; });
    case RowOpcode::kNegate:
      return Unary(o, count, [](Vector x) HWY_ATTR { return hn::Neg(x); });
    case RowOpcode::kAbs:
      return Unary(o, count, [](Vector x) HWY_ATTR { return hn::Abs(x); });
    case RowOpcode::kExp:
      return Unary(o, count, [](Vector x) HWY_ATTR { return Exponential(x); });
    case RowOpcode::kTanh:
      return Unary(o, count, [&](Vector x) HWY_ATTR {
        return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x));
      });
    case RowOpcode::kLog:  // The usual case is one element per row.
      for (int64_t r = 0; r < o.rows; ++r) {
        const float* x = o.inputs[0].at + r * o.inputs[0].stride;
        for (int64_t i = 0; i < count; ++i) o.result[r * o.result_stride + i] = std::log(x[i]);
      }
      return;
    case RowOpcode::kNot:
      return Unary(o, count, [&](Vector x) HWY_ATTR {
        return hn::BitCast(d, hn::Xor(hn::BitCast(Integers(), x), hn::Set(Integers(), 1)));
      });
    case RowOpcode::kFromInteger:
      return Unary(o, count, [&](Vector x) HWY_ATTR { return hn::ConvertTo(d, hn::BitCast(Integers(), x)); });
    case RowOpcode::kRoundToBf16:
      return Unary(o, count, [](Vector x) HWY_ATTR { return RoundToBf16(x); });
    case RowOpcode::kRoundToF16:
      return Unary(o, count, [](Vector x) HWY_ATTR { return RoundToF16(x); });
    default:
      return ApplyComparison(o, count);
  }
}

void Apply(const RowOperation& o, int64_t count) {
  switch (o.opcode) {
    case RowOpcode::kAdd:
      return Binary(o, count, [](Vector x, Vector y) HWY_ATTR { return hn::Add(x, y); });
    case RowOpcode::kSubtract:
      return Binary(o, count, [](Vector x, Vector y) HWY_ATTR { return hn::Sub(x, y); });
    case RowOpcode::kMultiply:
      return Binary(o, count, [](Vector x, Vector y) HWY_ATTR { return hn::Mul(x, y); });
    case RowOpcode::kDivide:
      return Divide(o, count);
    case RowOpcode::kMaximum:
      return Binary(o, count, [](Vector x, Vector y) HWY_ATTR { return Larger(x, y); });
    case RowOpcode::kMinimum:
      return Binary(o, count, [](Vector x, Vector y) HWY_ATTR { return Smaller(x, y); });
    case RowOpcode::kSelect:
      return Select(o, count);
    default:
      return ApplyUnary(o, count);
  }
}

// Computes the maximum ignoring NaN, and separately whether there is a NaN. Uses four independent accumulators, because
// each step of one accumulator depends on its previous step.
float RowMax(const float* x, int64_t count) {
  const Floats d;
  const Integers integers;
  Vector largest[4];
  for (Vector& v : largest) v = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto bad = hn::Zero(integers);
  const auto take = [&](Vector v, Vector* into) HWY_ATTR {
    *into = hn::Max(v, *into);
    bad = hn::Or(bad, OneWhere(hn::IsNaN(v)));
  };
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int s = 0; s < 4; ++s) take(hn::LoadU(d, x + i + s * kLanes), &largest[s]);
  }
  for (; i + kLanes <= count; i += kLanes) take(hn::LoadU(d, x + i), &largest[0]);
  const Vector both = hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3]));
  float result = hn::GetLane(hn::MaxOfLanes(d, both));
  bool is_bad = hn::GetLane(hn::MaxOfLanes(integers, bad)) != 0;
  for (; i < count; ++i) {
    is_bad |= std::isnan(x[i]);
    result = std::max(result, x[i]);
  }
  return is_bad ? std::numeric_limits<float>::quiet_NaN() : result;
}

float RowSum(const float* x, int64_t count) {
  const Floats d;
  Vector sums[4];
  for (Vector& sum : sums) sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int s = 0; s < 4; ++s) sums[s] = hn::Add(sums[s], hn::LoadU(d, x + i + s * kLanes));
  }
  for (; i + kLanes <= count; i += kLanes) sums[0] = hn::Add(sums[0], hn::LoadU(d, x + i));
  float result = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
  for (; i < count; ++i) result += x[i];
  return result;
}

// Widens whole vectors; the caller widens the remaining elements.
int64_t FromBf16(const uint16_t* x, int64_t count, float* to) {
  const Integers d;
  const hn::Rebind<uint16_t, Integers> narrow;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(narrow, x + i)));
    hn::StoreU(hn::BitCast(Floats(), bits), Floats(), to + i);
  }
  return i;
}

int64_t FromPredicates(const uint8_t* x, int64_t count, float* to) {
  const Integers d;
  const hn::Rebind<uint8_t, Integers> narrow;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto bytes = hn::PromoteTo(d, hn::LoadU(narrow, x + i));
    hn::StoreU(hn::BitCast(Floats(), OneWhere(hn::Ne(bytes, hn::Zero(d)))), Floats(), to + i);
  }
  return i;
}

// Replaces four vectors, whose blocks of four lanes are rows of matrices, by the vectors of the transposed matrices.
HWY_INLINE void TransposeBlocks(Vector* v) {
  const Floats d;
  const hn::Repartition<uint64_t, Floats> pairs;
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, v[0], v[1]));
  const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, v[0], v[1]));
  const auto cd_low = hn::BitCast(pairs, hn::InterleaveLower(d, v[2], v[3]));
  const auto cd_high = hn::BitCast(pairs, hn::InterleaveUpper(d, v[2], v[3]));
  v[0] = hn::BitCast(d, hn::InterleaveLower(pairs, ab_low, cd_low));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_low, cd_low));
  v[2] = hn::BitCast(d, hn::InterleaveLower(pairs, ab_high, cd_high));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_high, cd_high));
}

// First transposes the blocks of four by four elements, then the matrix of blocks.
void TransposeSquare(const float* x, const int64_t* columns, float* to, int64_t stride) {
  const Floats d;
  Vector v[kLanes];
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < kLanes; ++i) v[i] = hn::LoadU(d, x + columns[i]);
  if constexpr (kLanes >= 4) {
#pragma clang loop unroll(full)
    for (int64_t i = 0; i < kLanes; i += 4) TransposeBlocks(v + i);
  }
  if constexpr (kLanes == 8) {
    for (int64_t i = 0; i < 4; ++i) {
      const Vector low = v[i], high = v[i + 4];
      v[i] = hn::ConcatLowerLower(d, high, low);
      v[i + 4] = hn::ConcatUpperUpper(d, high, low);
    }
  } else if constexpr (kLanes == 16) {
#pragma clang loop unroll(full)
    for (int64_t i = 0; i < 4; ++i) {
      const Vector a = v[i], b = v[i + 4], c = v[i + 8], e = v[i + 12];
      const Vector ab_even = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a);
      const Vector ab_odd = hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a));
      const Vector ce_even = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(e), c);
      const Vector ce_odd = hn::OddEvenBlocks(e, hn::SwapAdjacentBlocks(c));
      v[i] = hn::ConcatLowerLower(d, ce_even, ab_even);
      v[i + 4] = hn::ConcatLowerLower(d, ce_odd, ab_odd);
      v[i + 8] = hn::ConcatUpperUpper(d, ce_even, ab_even);
      v[i + 12] = hn::ConcatUpperUpper(d, ce_odd, ab_odd);
    }
  }
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < kLanes; ++i) hn::StoreU(v[i], d, to + i * stride);
}

AttentionKernels Kernels() {
  return {kPanel, kLanes, Multiply, Apply, RowMax, RowSum, FromBf16, FromPredicates, TransposeSquare};
}

}  // namespace HWY_NAMESPACE
}  // namespace xlad::runtime
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace xlad::runtime {

HWY_EXPORT(Kernels);

const AttentionKernels& AttentionKernelsOfCpu() {
  static const AttentionKernels kernels = HWY_DYNAMIC_DISPATCH(Kernels)();
  return kernels;
}

}  // namespace xlad::runtime
#endif
