// The passes of fft_kernels.h, compiled for several instruction sets by Highway (github.com/google/highway), which
// chooses one when the program runs.
#include "runtime/devices/cpu/fft_kernels.h"

#include <algorithm>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/devices/cpu/fft_kernels.cc"
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace xlad::runtime {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A vector of complex numbers: the real and the imaginary parts.
template <typename V>
struct Pair {
  V re, im;
};

template <typename V>
HWY_INLINE Pair<V> Plus(const Pair<V>& a, const Pair<V>& b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
template <typename V>
HWY_INLINE Pair<V> Minus(const Pair<V>& a, const Pair<V>& b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
template <typename V>
HWY_INLINE Pair<V> Times(const Pair<V>& a, const Pair<V>& b) {
  return {hn::NegMulAdd(a.im, b.im, hn::Mul(a.re, b.re)), hn::MulAdd(a.re, b.im, hn::Mul(a.im, b.re))};
}
// -i a
template <typename V>
HWY_INLINE Pair<V> TimesMinusI(const Pair<V>& a) {
  return {a.im, hn::Neg(a.re)};
}

template <typename D, typename T = hn::TFromD<D>>
HWY_INLINE Pair<hn::Vec<D>> Load(D d, const FftArray<T>& array, int64_t i) {
  Pair<hn::Vec<D>> value;
  if (array.step == 1) return {hn::LoadU(d, array.re + i), hn::LoadU(d, array.im + i)};
  if (array.re < array.im) {
    hn::LoadInterleaved2(d, array.re + 2 * i, value.re, value.im);
  } else {
    hn::LoadInterleaved2(d, array.im + 2 * i, value.im, value.re);
  }
  return value;
}

template <typename D, typename T = hn::TFromD<D>>
HWY_INLINE void Store(D d, const Pair<hn::Vec<D>>& value, const FftArray<T>& array, int64_t i) {
  if (array.step == 1) {
    hn::StoreU(value.re, d, array.re + i);
    hn::StoreU(value.im, d, array.im + i);
  } else if (array.re < array.im) {
    hn::StoreInterleaved2(value.re, value.im, d, array.re + 2 * i);
  } else {
    hn::StoreInterleaved2(value.im, value.re, d, array.im + 2 * i);
  }
}

// Calls f(d, i) for vectors of type d at index i that cover 0 .. count-1: full vectors, then shorter vectors for the
// rest.
template <typename T, typename F>
HWY_INLINE void ForVectors(int64_t count, const F& f) {
  const hn::ScalableTag<T> full;
  const int64_t lanes = hn::Lanes(full);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(full, i);
  if constexpr (hn::MaxLanes(hn::ScalableTag<T>()) > 8) {
    const hn::CappedTag<T, 8> eight;
    for (; i + 8 <= count; i += 8) f(eight, i);
  }
  if constexpr (hn::MaxLanes(hn::ScalableTag<T>()) > 4) {
    const hn::CappedTag<T, 4> four;
    for (; i + 4 <= count; i += 4) f(four, i);
  }
  const hn::CappedTag<T, 1> one;
  for (; i < count; ++i) f(one, i);
}

// cos(2 pi k / kRadix) and sin(2 pi k / kRadix).
template <int kRadix>
constexpr double Cosine(int k) {
  constexpr double kThird[] = {1, -0.5};
  constexpr double kFifth[] = {1, 0.30901699437494742410, -0.80901699437494742410};
  constexpr double kSeventh[] = {1, 0.62348980185873353053, -0.22252093395631440429, -0.90096886790241912624};
  const int folded = std::min(k % kRadix, kRadix - k % kRadix);
  return kRadix == 3 ? kThird[folded] : kRadix == 5 ? kFifth[folded] : kSeventh[folded];
}
template <int kRadix>
constexpr double Sine(int k) {
  constexpr double kThird[] = {0, 0.86602540378443864676};
  constexpr double kFifth[] = {0, 0.95105651629515357212, 0.58778525229247312917};
  constexpr double kSeventh[] = {0, 0.78183148246802980871, 0.97492791218182360702, 0.43388373911755812048};
  const int folded = std::min(k % kRadix, kRadix - k % kRadix);
  const double size = kRadix == 3 ? kThird[folded] : kRadix == 5 ? kFifth[folded] : kSeventh[folded];
  return k % kRadix == folded ? size : -size;
}

// The discrete Fourier transform of kRadix numbers, in place. For an odd radix, uses the fact that the cosine is even
// and the sine is odd.
template <int kRadix, typename D>
HWY_INLINE void Butterfly(D d, Pair<hn::Vec<D>>* x) {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  if constexpr (kRadix == 2) {
    const Pair<V> a = x[0], b = x[1];
    x[0] = Plus(a, b);
    x[1] = Minus(a, b);
  } else if constexpr (kRadix == 4) {
    const Pair<V> a = Plus(x[0], x[2]), b = Minus(x[0], x[2]), c = Plus(x[1], x[3]);
    const Pair<V> e = TimesMinusI(Minus(x[1], x[3]));
    x[0] = Plus(a, c);
    x[1] = Plus(b, e);
    x[2] = Minus(a, c);
    x[3] = Minus(b, e);
  } else if constexpr (kRadix == 8) {
    Pair<V> even[4] = {x[0], x[2], x[4], x[6]}, odd[4] = {x[1], x[3], x[5], x[7]};
    Butterfly<4>(d, even);
    Butterfly<4>(d, odd);
    const V half = hn::Set(d, static_cast<T>(std::numbers::sqrt2 / 2));
    odd[1] = {hn::Mul(half, hn::Add(odd[1].re, odd[1].im)), hn::Mul(half, hn::Sub(odd[1].im, odd[1].re))};
    odd[2] = TimesMinusI(odd[2]);
    odd[3] = {hn::Mul(half, hn::Sub(odd[3].im, odd[3].re)),
              hn::Neg(hn::Mul(half, hn::Add(odd[3].re, odd[3].im)))};
    for (int j = 0; j < 4; ++j) {
      x[j] = Plus(even[j], odd[j]);
      x[j + 4] = Minus(even[j], odd[j]);
    }
  } else {
    constexpr int kHalf = kRadix / 2;
    Pair<V> sum[kHalf], difference[kHalf];
    const Pair<V> first = x[0];
    for (int k = 0; k < kHalf; ++k) {
      sum[k] = Plus(x[k + 1], x[kRadix - 1 - k]);
      difference[k] = Minus(x[k + 1], x[kRadix - 1 - k]);
      x[0] = Plus(x[0], sum[k]);
    }
    for (int j = 1; j <= kHalf; ++j) {
      Pair<V> a = first, b = {hn::Zero(d), hn::Zero(d)};
      for (int k = 0; k < kHalf; ++k) {
        const V cosine = hn::Set(d, static_cast<T>(Cosine<kRadix>(j * (k + 1))));
        const V sine = hn::Set(d, static_cast<T>(Sine<kRadix>(j * (k + 1))));
        a = {hn::MulAdd(cosine, sum[k].re, a.re), hn::MulAdd(cosine, sum[k].im, a.im)};
        b = {hn::MulAdd(sine, difference[k].re, b.re), hn::MulAdd(sine, difference[k].im, b.im)};
      }
      b = TimesMinusI(b);
      x[j] = Plus(a, b);
      x[kRadix - j] = Minus(a, b);
    }
  }
}

template <int kRadix, typename T>
void Pass(const FftPass<T>& pass, const FftArray<T>& from, const FftArray<T>& to) {
  const int64_t s = pass.stride;
  for (int64_t p = 0; p < pass.m; ++p) {
    const T* twiddles = pass.twiddles + 2 * (kRadix - 1) * p;
    ForVectors<T>(s, [&](auto d, int64_t q) HWY_ATTR {
      using V = hn::Vec<decltype(d)>;
      Pair<V> x[kRadix];
      for (int k = 0; k < kRadix; ++k) x[k] = Load(d, from, q + s * (p + pass.m * k));
      Butterfly<kRadix>(d, x);
      if (pass.m > 1) {
        Store(d, x[0], to, q + s * (kRadix * p));
        for (int j = 1; j < kRadix; ++j) {
          const Pair<V> w = {hn::Set(d, twiddles[2 * j - 2]), hn::Set(d, twiddles[2 * j - 1])};
          Store(d, Times(x[j], w), to, q + s * (kRadix * p + j));
        }
      } else {
        const V scale = hn::Set(d, pass.scale);
        for (int j = 0; j < kRadix; ++j) {
          Store(d, Pair<V>{hn::Mul(x[j].re, scale), hn::Mul(x[j].im, scale)}, to, q + s * j);
        }
      }
    });
  }
}

// Writes x[j][i] to y[s (kRadix p + j) + q], a transposition. (p, q) is the pair with number first + i = s p + q, where
// q < s.
template <int kRadix, typename D, typename T = hn::TFromD<D>>
HWY_INLINE void StoreSpread(D d, const hn::Vec<D>* x, int64_t s, int64_t first, T* to) {
  constexpr size_t kLanes = hn::MaxLanes(d);
  if constexpr (kLanes >= 4 && (kRadix == 4 || kRadix == 8)) {
    if (s == 1 && kRadix == 4) return hn::StoreInterleaved4(x[0], x[1], x[2], x[3], d, to + kRadix * first);
    if (s == 1) {
      HWY_ALIGN T parts[2][4 * kLanes];
      hn::StoreInterleaved4(x[0], x[1], x[2], x[3], d, parts[0]);
      hn::StoreInterleaved4(x[kRadix - 4], x[kRadix - 3], x[kRadix - 2], x[kRadix - 1], d, parts[1]);
      const hn::CappedTag<T, 4> four;
      for (int64_t i = 0; i < kLanes; ++i) {
        for (int part = 0; part < 2; ++part) {
          T* const target = to + 8 * (first + i) + 4 * part;
          for (size_t e = 0; e < 4; e += hn::Lanes(four)) {
            hn::StoreU(hn::Load(four, parts[part] + 4 * i + e), four, target + e);
          }
        }
      }
      return;
    }
  }
  HWY_ALIGN T parts[kRadix][kLanes];
  for (int j = 0; j < kRadix; ++j) hn::Store(x[j], d, parts[j]);
  int64_t q = first % s;
  T* target = to + s * kRadix * (first / s) + q;
  for (size_t i = 0; i < kLanes; ++i) {
    for (int j = 0; j < kRadix; ++j) target[s * j] = parts[j][i];
    ++target;
    if (++q == s) {
      q = 0;
      target += s * (kRadix - 1);
    }
  }
}

template <int kRadix, typename T>
void SpreadPass(const FftPass<T>& pass, const FftArray<T>& from, const FftArray<T>& to) {
  const int64_t count = pass.m * pass.stride;
  ForVectors<T>(count, [&](auto d, int64_t t) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    Pair<V> x[kRadix];
    for (int k = 0; k < kRadix; ++k) x[k] = Load(d, from, t + count * k);
    Butterfly<kRadix>(d, x);
    V re[kRadix], im[kRadix];
    re[0] = x[0].re;
    im[0] = x[0].im;
    for (int j = 1; j < kRadix; ++j) {
      const T* const w = pass.twiddles + 2 * count * (j - 1) + t;
      const Pair<V> y = Times(x[j], Pair<V>{hn::LoadU(d, w), hn::LoadU(d, w + count)});
      re[j] = y.re;
      im[j] = y.im;
    }
    StoreSpread<kRadix>(d, re, pass.stride, t, to.re);
    StoreSpread<kRadix>(d, im, pass.stride, t, to.im);
  });
}

// A pass of any radix up to kMaxRadix, by the definition of the transform.
template <typename T>
void GeneralPass(const FftPass<T>& pass, const FftArray<T>& from, const FftArray<T>& to) {
  const int64_t s = pass.stride, r = pass.radix;
  for (int64_t p = 0; p < pass.m; ++p) {
    const T* twiddles = pass.twiddles + 2 * (r - 1) * p;
    ForVectors<T>(s, [&](auto d, int64_t q) HWY_ATTR {
      using V = hn::Vec<decltype(d)>;
      Pair<V> sum[kMaxRadix / 2], difference[kMaxRadix / 2];
      const Pair<V> first = Load(d, from, q + s * p);
      Pair<V> total = first;
      for (int64_t k = 1; 2 * k < r; ++k) {
        const Pair<V> a = Load(d, from, q + s * (p + pass.m * k)), b = Load(d, from, q + s * (p + pass.m * (r - k)));
        sum[k - 1] = Plus(a, b);
        difference[k - 1] = Minus(a, b);
        total = Plus(total, sum[k - 1]);
      }
      const V scale = hn::Set(d, pass.scale);
      const auto store = [&](int64_t j, const Pair<V>& value) HWY_ATTR {
        Pair<V> result = {hn::Mul(value.re, scale), hn::Mul(value.im, scale)};
        if (pass.m > 1 && j > 0) {
          result = Times(result, Pair<V>{hn::Set(d, twiddles[2 * j - 2]), hn::Set(d, twiddles[2 * j - 1])});
        }
        Store(d, result, to, q + s * (r * p + j));
      };
      store(0, total);
      for (int64_t j = 1; 2 * j < r; ++j) {
        Pair<V> a = first, b = {hn::Zero(d), hn::Zero(d)};
        for (int64_t k = 1; 2 * k < r; ++k) {
          const T* const root = pass.roots + 2 * (j * k % r);
          const V cosine = hn::Set(d, root[0]), sine = hn::Set(d, -root[1]);
          a = {hn::MulAdd(cosine, sum[k - 1].re, a.re), hn::MulAdd(cosine, sum[k - 1].im, a.im)};
          b = {hn::MulAdd(sine, difference[k - 1].re, b.re), hn::MulAdd(sine, difference[k - 1].im, b.im)};
        }
        b = TimesMinusI(b);
        store(j, Plus(a, b));
        store(r - j, Minus(a, b));
      }
    });
  }
}

template <typename T>
void RunPass(const FftPass<T>& pass, const FftArray<T>& from, const FftArray<T>& to) {
  switch (pass.radix) {
    case 2: return pass.spread ? SpreadPass<2>(pass, from, to) : Pass<2>(pass, from, to);
    case 3: return pass.spread ? SpreadPass<3>(pass, from, to) : Pass<3>(pass, from, to);
    case 4: return pass.spread ? SpreadPass<4>(pass, from, to) : Pass<4>(pass, from, to);
    case 5: return pass.spread ? SpreadPass<5>(pass, from, to) : Pass<5>(pass, from, to);
    case 7: return pass.spread ? SpreadPass<7>(pass, from, to) : Pass<7>(pass, from, to);
    case 8: return pass.spread ? SpreadPass<8>(pass, from, to) : Pass<8>(pass, from, to);
    default: return GeneralPass(pass, from, to);
  }
}

template <typename T>
void Copy(const FftArray<T>& from, const FftArray<T>& to, int64_t count, T scale) {
  ForVectors<T>(count, [&](auto d, int64_t i) HWY_ATTR {
    const auto x = Load(d, from, i);
    const auto by = hn::Set(d, scale);
    Store(d, Pair<hn::Vec<decltype(d)>>{hn::Mul(x.re, by), hn::Mul(x.im, by)}, to, i);
  });
}

template <typename T>
void Multiply(const FftArray<T>& from, const FftArray<T>& by, const FftArray<T>& to, int64_t count) {
  ForVectors<T>(count, [&](auto d, int64_t i) HWY_ATTR {
    Store(d, Times(Load(d, from, i), Load(d, by, i)), to, i);
  });
}

// With a = z[k], b = conj(z[h-k]) and w = e^(-pi i k / h):
//   x[k] = ((a + b) - i w (a - b)) / 2 and x[h-k] = conj((a + b) + i w (a - b)) / 2.
template <typename T>
void HalfToReal(const T* z, const T* roots, int64_t h, T* x) {
  x[0] = z[0] + z[1];
  x[1] = 0;
  x[2 * h] = z[0] - z[1];
  x[2 * h + 1] = 0;
  const auto element = [](T* from) { return FftArray<T>{from, from + 1, 2}; };
  // k = 1 .. h/2 and, mirrored, h-1 .. h-h/2.
  ForVectors<T>(h / 2, [&](auto d, int64_t i) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    const int64_t k = i + 1, mirrored = h - i - hn::Lanes(d);
    const Pair<V> a = Load(d, element(const_cast<T*>(z)), k), c = Load(d, element(const_cast<T*>(z)), mirrored);
    const Pair<V> b = {hn::Reverse(d, c.re), hn::Neg(hn::Reverse(d, c.im))};
    const Pair<V> w = Load(d, element(const_cast<T*>(roots)), k);
    const Pair<V> sum = Plus(a, b), turned = TimesMinusI(Times(Minus(a, b), w));
    const V half = hn::Set(d, static_cast<T>(0.5));
    const Pair<V> low = {hn::Mul(half, hn::Add(sum.re, turned.re)), hn::Mul(half, hn::Add(sum.im, turned.im))};
    const Pair<V> high = {hn::Mul(half, hn::Sub(sum.re, turned.re)), hn::Mul(half, hn::Sub(turned.im, sum.im))};
    Store(d, low, element(x), k);
    Store(d, Pair<V>{hn::Reverse(d, high.re), hn::Reverse(d, high.im)}, element(x), mirrored);
  });
}

// With a = x[k], b = conj(x[h-k]) and w as above:
//   z[k] = (a + b) + i conj(w) (a - b) and z[h-k] = conj((a + b) - i conj(w) (a - b)).
template <typename T>
void RealToHalf(const T* x, const T* roots, int64_t h, T* z) {
  z[0] = x[0] + x[2 * h];
  z[1] = x[0] - x[2 * h];
  const auto element = [](T* from) { return FftArray<T>{from, from + 1, 2}; };
  ForVectors<T>(h / 2, [&](auto d, int64_t i) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    const int64_t k = i + 1, mirrored = h - i - hn::Lanes(d);
    const Pair<V> a = Load(d, element(const_cast<T*>(x)), k), c = Load(d, element(const_cast<T*>(x)), mirrored);
    const Pair<V> b = {hn::Reverse(d, c.re), hn::Neg(hn::Reverse(d, c.im))};
    const Pair<V> root = Load(d, element(const_cast<T*>(roots)), k);
    const Pair<V> sum = Plus(a, b);
    const Pair<V> minus = TimesMinusI(Times(Minus(a, b), Pair<V>{root.re, hn::Neg(root.im)}));
    Store(d, Minus(sum, minus), element(z), k);
    const Pair<V> high = Plus(sum, minus);
    Store(d, Pair<V>{hn::Reverse(d, high.re), hn::Neg(hn::Reverse(d, high.im))}, element(z), mirrored);
  });
}

template <typename T>
FftKernels<T> Kernels() {
  return {RunPass<T>, Copy<T>, Multiply<T>, HalfToReal<T>, RealToHalf<T>};
}
FftKernels<float> KernelsF32() { return Kernels<float>(); }
FftKernels<double> KernelsF64() { return Kernels<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace xlad::runtime
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace xlad::runtime {

HWY_EXPORT(KernelsF32);
HWY_EXPORT(KernelsF64);

const FftKernels<float>& FftKernelsF32() {
  static const FftKernels<float> kernels = HWY_DYNAMIC_DISPATCH(KernelsF32)();
  return kernels;
}

const FftKernels<double>& FftKernelsF64() {
  static const FftKernels<double> kernels = HWY_DYNAMIC_DISPATCH(KernelsF64)();
  return kernels;
}

}  // namespace xlad::runtime
#endif
