// The passes of a Fourier transform, in vector instructions. fft_plan.h combines passes into transforms.
//
// Between passes, the real and imaginary parts are separate arrays. The passes are those of Stockham's form of the
// mixed-radix Cooley-Tukey algorithm (Van Loan, "Computational frameworks for the fast Fourier transform", section
// 1.7). A pass of radix r, with n = r m remaining points and stride s, computes for p < m, q < s and j < r
//
//   y[q + s (r p + j)] = w^(p j) * sum over k of x[q + s (p + m k)] e^(-2 pi i j k / r),   w = e^(-2 pi i / n).
//
// In the next pass, n is m, and s is multiplied by r. After the last pass the result is in order. If the elements of a
// batch of lines are interleaved in memory, the lines are transformed together: s is then the number of lines in the
// first pass.
#pragma once

#include <cstdint>

namespace xlad::runtime {

// The real and imaginary parts of an array: two arrays if `step` is 1, interleaved in one array if `step` is 2.
template <typename T>
struct FftArray {
  T* re = nullptr;
  T* im = nullptr;
  int64_t step = 1;
};

template <typename T>
struct FftPass {
  int radix = 1;
  int64_t m = 1, stride = 1;
  // w^(p j): for each p, for each j from 1, the real and the imaginary part. If `spread`: for each j from 1, all real
  // parts and then all imaginary parts for the m * stride pairs (p, q), q fastest.
  const T* twiddles = nullptr;
  bool spread = false;
  // For radices without a specialized function: e^(-2 pi i k / radix), real and imaginary parts, for k < radix.
  const T* roots = nullptr;
  T scale = 1;  // A factor for the result. It differs from 1 only in the last pass, which is not spread.
};

inline constexpr int kMaxRadix = 61;
// If one line is transformed, passes with smaller strides are spread, except the last pass and those whose radix has no
// specialized function.
inline constexpr int64_t kMinStride = 8;

// The passes and the loops around them for one instruction set. None of the functions allocates memory.
template <typename T>
struct FftKernels {
  // `from` may have step 2 only if the pass is spread, `to` only if m is 1. `from` and `to` do not overlap.
  void (*pass)(const FftPass<T>& pass, const FftArray<T>& from, const FftArray<T>& to);
  // Copies `count` elements, multiplied by `scale`, to an array whose `step` may differ.
  void (*copy)(const FftArray<T>& from, const FftArray<T>& to, int64_t count, T scale);
  // to[k] = from[k] * by[k].
  void (*multiply)(const FftArray<T>& from, const FftArray<T>& by, const FftArray<T>& to, int64_t count);
  // half_to_real computes the spectrum x[0..h] of 2h real numbers from z[0..h-1], the transform of the h complex
  // numbers that are pairs of these real numbers. real_to_half does the reverse, without the factor 1/2.
  // roots[k] = e^(-pi i k / h) for k <= h/2. x and z have step 2 and do not overlap.
  void (*half_to_real)(const T* z, const T* roots, int64_t h, T* x);
  void (*real_to_half)(const T* x, const T* roots, int64_t h, T* z);
};

// The passes for the CPU that the program runs on.
const FftKernels<float>& FftKernelsF32();
const FftKernels<double>& FftKernelsF64();
template <typename T>
const FftKernels<T>& FftKernelsOf() {
  if constexpr (sizeof(T) == sizeof(float)) {
    return FftKernelsF32();
  } else {
    return FftKernelsF64();
  }
}

}  // namespace xlad::runtime
