// A plan for complex Fourier transforms of one length: its passes (fft_kernels.h) and their constants.
//
// The length is factored into the radices 8, 4, 7, 5, 3 and 2 and into other primes up to kMaxRadix. A length with a
// larger prime factor, or with prime factors for which a convolution takes less time, is transformed as a convolution
// of a longer length (Bluestein, "A linear filtering approach to the computation of the discrete Fourier transform",
// 1970).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/devices/cpu/fft_kernels.h"

namespace xlad::runtime {

// Immutable, so that several threads can use it at once.
template <typename T>
class FftPlan {
 public:
  // A plan for lines of n >= 1 numbers. If `batched`, it transforms several lines at a time, whose elements alternate
  // in memory; otherwise one line. `batched` must be false if IsFftConvolution(n).
  FftPlan(int64_t n, bool batched);

  int64_t size() const { return n_; }
  // The number of elements of scratch that Run needs for `lines` lines.
  int64_t scratch_elements(int64_t lines) const;

  // Transforms `lines` lines (1 if the plan is not batched): element k of line l is at k * lines + l of `from` and of
  // `to`, which may be the same memory. Multiplies the result by `scale`. For the inverse transform (without its factor
  // 1/n), exchange re and im in both arrays.
  void Run(const FftArray<T>& from, const FftArray<T>& to, int64_t lines, T scale, T* scratch) const;

 private:
  void AddPasses(const std::vector<int>& radices);
  void PrepareConvolution(int64_t length);
  void RunConvolution(const FftArray<T>& from, const FftArray<T>& to, T scale, T* scratch) const;

  int64_t n_ = 1;
  bool batched_ = false;
  std::vector<FftPass<T>> passes_;  // The passes, with the strides for one line.
  std::vector<std::unique_ptr<T[]>> constants_;
  // For a transform by convolution: the plan of the longer length, the chirp e^(-pi i k^2 / n), and the transform of
  // the conjugate chirp, divided by the longer length.
  std::unique_ptr<FftPlan<T>> convolution_;
  FftArray<T> chirp_, filter_;
};

// Whether a transform of length n is computed as a convolution, which only plans for one line support.
bool IsFftConvolution(int64_t n);

// Sets re and im to cos and sin of -2 pi k / n.
void FftRoot(int64_t k, int64_t n, double* re, double* im);

extern template class FftPlan<float>;
extern template class FftPlan<double>;

}  // namespace xlad::runtime
