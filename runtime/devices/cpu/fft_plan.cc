#include "runtime/devices/cpu/fft_plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/rounding.h"

namespace xlad::runtime {
namespace {

bool HasFunction(int radix) { return radix <= 5 || radix == 7 || radix == 8; }

// The radices of n in the order of their passes; empty if n is 1 or has a prime factor above kMaxRadix. Radices 8 and 4
// come first, because the first passes of a line have small strides, with which other radices are slow.
std::vector<int> Radices(int64_t n) {
  std::vector<int> radices;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  int eights = twos / 3;
  if (twos % 3 == 1 && eights > 0) --eights;  // For example, 16 becomes 4 * 4 and not 8 * 2.
  radices.assign(eights, 8);
  for (twos -= 3 * eights; twos >= 2; twos -= 2) radices.push_back(4);
  for (int radix : {7, 5, 3}) {
    for (; n % radix == 0; n /= radix) radices.push_back(radix);
  }
  if (twos == 1) radices.push_back(2);
  for (int radix = 11; radix <= kMaxRadix && n > 1; radix += 2) {
    for (; n % radix == 0; n /= radix) radices.push_back(radix);
  }
  if (n > 1) radices.clear();
  return radices;
}

// The relative time of a transform: the sum over its passes of the time per element, times n.
double Cost(int64_t n, const std::vector<int>& radices) {
  double cost = 0;
  int64_t stride = 1;
  for (const int radix : radices) {
    const bool slow = stride < kMinStride && radix % 4 != 0;
    cost += 1 + (HasFunction(radix) ? 0.4 * radix : 1.0 * radix) * (slow ? 2 : 1);
    stride *= radix;
  }
  return cost * static_cast<double>(n);
}

// The length for the convolution: at least 2n - 1, with the least estimated time.
int64_t ConvolutionLength(int64_t n) {
  int64_t best = 0;
  double least = 0;
  for (int64_t sevens = 1; sevens < 4 * n; sevens *= 7) {
    for (int64_t fives = sevens; fives < 4 * n; fives *= 5) {
      for (int64_t threes = fives; threes < 4 * n; threes *= 3) {
        for (int64_t length = threes; length < 8 * n; length *= 2) {
          if (length < 2 * n - 1) continue;
          const double cost = Cost(length, Radices(length));
          if (best == 0 || cost < least) {
            best = length;
            least = cost;
          }
          break;
        }
      }
    }
  }
  return best;
}

// Rounded up to whole vectors, so that the imaginary parts have the same alignment as the real parts.
int64_t Padded(int64_t elements) { return RoundUp(elements, 16); }

template <typename T>
FftArray<T> Separate(T* memory, int64_t count) {
  return {memory, memory + Padded(count), 1};
}
template <typename T>
FftArray<T> Exchanged(const FftArray<T>& array) {
  return {array.im, array.re, array.step};
}

}  // namespace

void FftRoot(int64_t k, int64_t n, double* re, double* im) {
  // The angle is reduced to an eighth of a circle, because sines and cosines are most accurate there.
  const int64_t octant = 8 * k / n;
  const double fraction = static_cast<double>(8 * k - octant * n) / static_cast<double>(8 * n);
  const double angle = 2 * std::numbers::pi * ((octant % 2 == 0) ? fraction : 0.125 - fraction);
  double c = std::cos(angle), s = std::sin(angle);
  if (octant % 4 == 1 || octant % 4 == 2) std::swap(c, s);
  const bool left = octant % 8 >= 2 && octant % 8 < 6, lower = octant % 8 >= 4;
  *re = left ? -c : c;
  *im = lower ? s : -s;
}

bool IsFftConvolution(int64_t n) {
  const std::vector<int> radices = Radices(n);
  if (n == 1 || (!radices.empty() && radices.back() <= 7)) return false;
  if (radices.empty()) return true;
  const int64_t length = ConvolutionLength(n);
  return Cost(n, radices) > 2 * Cost(length, Radices(length)) + 5.0 * static_cast<double>(length);
}

template <typename T>
FftPlan<T>::FftPlan(int64_t n, bool batched) : n_(n), batched_(batched) {
  if (IsFftConvolution(n)) {
    PrepareConvolution(ConvolutionLength(n));
  } else if (n > 1) {
    AddPasses(Radices(n));
  }
}

template <typename T>
void FftPlan<T>::AddPasses(const std::vector<int>& radices) {
  int64_t rest = n_, stride = 1;
  for (const int radix : radices) {
    FftPass<T> pass;
    pass.radix = radix;
    pass.m = rest / radix;
    pass.stride = stride;
    pass.spread = !batched_ && stride < kMinStride && HasFunction(radix) && pass.m > 1;
    const int64_t repeats = pass.spread ? stride : 1;
    auto twiddles = std::make_unique<T[]>(2 * (radix - 1) * pass.m * repeats);
    for (int64_t j = 1; j < radix; ++j) {
      for (int64_t p = 0; p < pass.m; ++p) {
        double re, im;
        FftRoot(p * j, rest, &re, &im);
        for (int64_t q = 0; q < repeats; ++q) {
          const int64_t spread_at = 2 * (j - 1) * pass.m * stride + p * stride + q;
          const int64_t at = pass.spread ? spread_at : 2 * ((radix - 1) * p + j - 1);
          twiddles[at] = static_cast<T>(re);
          twiddles[pass.spread ? at + pass.m * stride : at + 1] = static_cast<T>(im);
        }
      }
    }
    pass.twiddles = twiddles.get();
    constants_.push_back(std::move(twiddles));
    if (!HasFunction(radix)) {
      auto roots = std::make_unique<T[]>(2 * radix);
      for (int64_t k = 0; k < radix; ++k) {
        double re, im;
        FftRoot(k, radix, &re, &im);
        roots[2 * k] = static_cast<T>(re);
        roots[2 * k + 1] = static_cast<T>(im);
      }
      pass.roots = roots.get();
      constants_.push_back(std::move(roots));
    }
    passes_.push_back(pass);
    rest = pass.m;
    stride *= radix;
  }
}

template <typename T>
int64_t FftPlan<T>::scratch_elements(int64_t lines) const {
  if (convolution_ == nullptr) return 4 * Padded(n_ * lines);
  return 4 * Padded(convolution_->n_) + convolution_->scratch_elements(1);
}

template <typename T>
void FftPlan<T>::Run(const FftArray<T>& from, const FftArray<T>& to, int64_t lines, T scale, T* scratch) const {
  if (convolution_ != nullptr) return RunConvolution(from, to, scale, scratch);
  const FftKernels<T>& kernels = FftKernelsOf<T>();
  const int64_t count = n_ * lines;
  if (passes_.empty()) return kernels.copy(from, to, count, scale);
  const FftArray<T> buffers[2] = {Separate(scratch, count), Separate(scratch + 2 * Padded(count), count)};
  FftArray<T> current = from;
  int next = 0;
  if (from.step == 2 && !passes_[0].spread) {
    kernels.copy(from, buffers[0], count, 1);
    current = buffers[0];
    next = 1;
  }
  for (size_t i = 0; i < passes_.size(); ++i) {
    const bool last = i + 1 == passes_.size();
    FftPass<T> pass = passes_[i];
    pass.stride *= lines;
    if (last) pass.scale = scale;
    const FftArray<T>& target = last ? to : buffers[next];
    kernels.pass(pass, current, target);
    current = target;
    next = 1 - next;
  }
}

template <typename T>
void FftPlan<T>::PrepareConvolution(int64_t length) {
  convolution_ = std::make_unique<FftPlan<T>>(length, /*batched=*/false);
  constants_.push_back(std::make_unique<T[]>(2 * Padded(n_)));
  chirp_ = Separate(constants_.back().get(), n_);
  constants_.push_back(std::make_unique<T[]>(2 * Padded(length)));
  filter_ = Separate(constants_.back().get(), length);
  std::vector<T> mirrored(2 * Padded(length));
  const FftArray<T> impulse = Separate(mirrored.data(), length);
  int64_t square = 0;  // k^2 modulo 2n.
  for (int64_t k = 0; k < n_; ++k) {
    double re, im;
    FftRoot(square, 2 * n_, &re, &im);
    chirp_.re[k] = static_cast<T>(re);
    chirp_.im[k] = static_cast<T>(im);
    for (const int64_t at : {k, (length - k) % length}) {
      impulse.re[at] = static_cast<T>(re);
      impulse.im[at] = static_cast<T>(-im);
    }
    square = (square + 2 * k + 1) % (2 * n_);
  }
  std::vector<T> scratch(convolution_->scratch_elements(1));
  convolution_->Run(impulse, filter_, 1, static_cast<T>(1.0 / static_cast<double>(length)), scratch.data());
}

template <typename T>
void FftPlan<T>::RunConvolution(const FftArray<T>& from, const FftArray<T>& to, T scale, T* scratch) const {
  const FftKernels<T>& kernels = FftKernelsOf<T>();
  const int64_t length = convolution_->n_;
  const FftArray<T> a = Separate(scratch, length), b = Separate(scratch + 2 * Padded(length), length);
  T* const rest = scratch + 4 * Padded(length);
  kernels.multiply(from, chirp_, a, n_);
  std::fill(a.re + n_, a.re + length, T(0));
  std::fill(a.im + n_, a.im + length, T(0));
  convolution_->Run(a, b, 1, 1, rest);
  kernels.multiply(b, filter_, b, length);
  convolution_->Run(Exchanged(b), Exchanged(a), 1, scale, rest);
  kernels.multiply(a, chirp_, to, n_);
}

template class FftPlan<float>;
template class FftPlan<double>;

}  // namespace xlad::runtime
