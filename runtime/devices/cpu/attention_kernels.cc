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
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));
constexpr int64_t kPanel = 2 * kLanes;
// Two vectors of accumulators a row; with 32 registers, twelve rows leave some for the operands.
constexpr int kMaxRows = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 12 : 6;
// Rows of b that are used by all rows of a before the next ones: a panel of them fits into the first-level cache.
constexpr int64_t kDepth = 256;

// The product of kRows rows of a and one panel of b; m and n are not looked at. Addresses are formed from one pointer
// for three rows each.
template <int kRows>
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
    right[r] = p.add ? hn::LoadU(d, p.c + r * p.c_row + kLanes) : hn::Zero(d);
  }
  const int64_t a_row = p.a_row, a_depth = p.a_depth;
  const float* b = p.b;
  for (int64_t l = 0; l < p.k; ++l, b += kPanel) {
    const Vector b0 = hn::Load(d, b), b1 = hn::Load(d, b + kLanes);
#pragma clang loop unroll(full)
    for (int r = 0; r < kRows; ++r) {
      const Vector x = hn::Set(d, rows[r / 3][(r % 3) * a_row]);
      left[r] = hn::MulAdd(x, b0, left[r]);
      right[r] = hn::MulAdd(x, b1, right[r]);
    }
#pragma clang loop unroll(full)
    for (int g = 0; g < kGroups; ++g) rows[g] += a_depth;
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(left[r], d, p.c + r * p.c_row);
    hn::StoreU(right[r], d, p.c + r * p.c_row + kLanes);
  }
}

// Calls MultiplyRows for p.m rows, 1 <= p.m <= kMaxRows.
template <int kRows = kMaxRows>
HWY_INLINE void MultiplySome(const TileProduct& p) {
  if constexpr (kRows > 0) {
    if (p.m == kRows) return MultiplyRows<kRows>(p);
    return MultiplySome<kRows - 1>(p);
  }
}

void Multiply(const TileProduct& p) {
  TileProduct part = p;
  for (int64_t j = 0; j < p.n; j += kPanel) {
    int64_t l = 0;
    do {  // A product over no elements is zero.
      part.k = std::min(kDepth, p.k - l);
      part.b = p.b + (j / kPanel) * p.b_panel + l * kPanel;
      part.add = p.add || l > 0;
      for (int64_t i = 0; i < p.m; i += kMaxRows) {
        part.m = std::min<int64_t>(kMaxRows, p.m - i);
        part.a = p.a + i * p.a_row + l * p.a_depth;
        part.c = p.c + i * p.c_row + j;
        MultiplySome(part);
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

HWY_INLINE void Select(const RowOperation& o, int64_t count) {
  const Floats d;
  for (int64_t r = 0; r < o.rows; ++r) {
    const auto at = [&](int k, int64_t i) HWY_ATTR {
      const RowInput& input = o.inputs[k];
      const float* row = input.at + r * input.stride;
      return input.narrow ? hn::Set(d, *row) : hn::LoadU(d, row + i);
    };
    for (int64_t i = 0; i < count; i += kLanes) {
      const auto condition = hn::Ne(hn::BitCast(Integers(), at(0, i)), hn::Zero(Integers()));
      hn::StoreU(hn::IfThenElse(hn::RebindMask(d, condition), at(1, i), at(2, i)), d,
                 o.result + r * o.result_stride + i);
    }
  }
}

// Instructions of x86 return one operand or the other if one of them is NaN, so NaN is chosen explicitly.
HWY_INLINE Vector Larger(Vector x, Vector y) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenElse(hn::IsNaN(y), y, hn::Max(x, y)));
}
HWY_INLINE Vector Smaller(Vector x, Vector y) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenElse(hn::IsNaN(y), y, hn::Min(x, y)));
}

// e^x = 2^n e^r with n = round(x / ln 2); e^r by its Taylor polynomial of degree 7, whose error for |r| <= ln 2 / 2 is
// below 6e-9. 2^n is applied in two factors, because it may be below the smallest normal number.
HWY_INLINE Vector Exponential(Vector x) {
  const Floats d;
  const Integers i;
  const Vector bounded = hn::Min(hn::Max(x, hn::Set(d, -105.0f)), hn::Set(d, 89.0f));
  const auto n = hn::NearestInt(hn::Mul(bounded, hn::Set(d, 1.44269504f)));
  const Vector whole = hn::ConvertTo(d, n);
  // ln 2 in two parts; the first has zeros at its end, so that its product with n is exact.
  Vector r = hn::NegMulAdd(whole, hn::Set(d, 0.693359375f), bounded);
  r = hn::NegMulAdd(whole, hn::Set(d, -2.12194440e-4f), r);
  Vector p = hn::Set(d, 1.0f / 5040);
  for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    p = hn::MulAdd(p, r, hn::Set(d, c));
  }
  const auto half = hn::ShiftRight<1>(n);
  const auto power = [&](hn::Vec<Integers> e) HWY_ATTR {
    return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(e, hn::Set(i, 127))));
  };
  p = hn::Mul(hn::Mul(p, power(half)), power(hn::Sub(n, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, p);
}

HWY_INLINE Vector RoundToBf16(Vector x) {
  const Integers i;
  const auto bits = hn::BitCast(i, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(i, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(i, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(i, 0x400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(i, hn::IsNaN(x)), quiet, rounded);
  return hn::BitCast(Floats(), hn::And(chosen, hn::Set(i, static_cast<int32_t>(0xffff0000))));
}

// Division by one number is multiplication by its reciprocal, unless that is not a normal number.
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
    case RowOpcode::kLog:  // Usually of one element.
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
    case RowOpcode::kRound:
      return Unary(o, count, [](Vector x) HWY_ATTR { return RoundToBf16(x); });
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

// Combines the elements of a row: four vectors beside each other, because each combination waits for the one before,
// then these, then the lanes, then the elements that do not fill a vector.
template <typename F, typename G>
HWY_INLINE float Reduce(const float* x, int64_t count, float neutral, const F& combine, const G& combine_two) {
  const Floats d;
  Vector sums[4];
  for (Vector& sum : sums) sum = hn::Set(d, neutral);
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int s = 0; s < 4; ++s) sums[s] = combine(sums[s], hn::LoadU(d, x + i + s * kLanes));
  }
  for (; i + kLanes <= count; i += kLanes) sums[0] = combine(sums[0], hn::LoadU(d, x + i));
  HWY_ALIGN float lanes[kLanes];
  hn::Store(combine(combine(sums[0], sums[1]), combine(sums[2], sums[3])), d, lanes);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) lanes[l] = combine_two(lanes[l], lanes[l + width]);
  }
  for (; i < count; ++i) lanes[0] = combine_two(lanes[0], x[i]);
  return lanes[0];
}

float RowMax(const float* x, int64_t count) {
  return Reduce(
      x, count, -std::numeric_limits<float>::infinity(), [](Vector a, Vector b) HWY_ATTR { return Larger(a, b); },
      [](float a, float b) { return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b); });
}

float RowSum(const float* x, int64_t count) {
  return Reduce(
      x, count, 0.0f, [](Vector a, Vector b) HWY_ATTR { return hn::Add(a, b); },
      [](float a, float b) { return a + b; });
}

AttentionKernels Kernels() { return {kPanel, Multiply, Apply, RowMax, RowSum}; }

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
