// Compares the library op fft with the definition of the transform in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

#include "base/random.h"
#include "base/testing/case_count.h"
#include "runtime/devices/cpu/fft_plan.h"
#include "runtime/devices/cpu/library_op.h"
#include "tensor/element_type.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;
using Complex = std::complex<double>;
using Dims = std::vector<int64_t>;

int64_t Product(const Dims& dims) {
  int64_t product = 1;
  for (const int64_t size : dims) product *= size;
  return product;
}

// The unscaled transform of dimension `d`, computed by its definition.
std::vector<Complex> Defined(const std::vector<Complex>& x, const Dims& dims, size_t d, bool inverse) {
  int64_t inner = 1;
  for (size_t e = d + 1; e < dims.size(); ++e) inner *= dims[e];
  const int64_t n = dims[d], outer = Product(dims) / (n * inner);
  std::vector<Complex> roots, y(x.size());
  for (int64_t k = 0; k < n; ++k) {
    double re, im;
    FftRoot(k, n, &re, &im);
    roots.emplace_back(re, inverse ? -im : im);
  }
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t i = 0; i < inner; ++i) {
        Complex sum = 0;
        for (int64_t j = 0; j < n; ++j) sum += x[(o * n + j) * inner + i] * roots[j * k % n];
        y[(o * n + k) * inner + i] = sum;
      }
    }
  }
  return y;
}

// Halved returns the first half, n / 2 + 1 elements, of the last dimension of a spectrum. Completed computes the whole
// spectrum from this half.
std::vector<Complex> Halved(const std::vector<Complex>& x, const Dims& dims) {
  const int64_t n = dims.back(), half = n / 2 + 1;
  std::vector<Complex> y;
  for (int64_t row = 0; row < Product(dims) / n; ++row) {
    for (int64_t k = 0; k < half; ++k) y.push_back(x[row * n + k]);
  }
  return y;
}
std::vector<Complex> Completed(const std::vector<Complex>& x, const Dims& dims) {
  const int64_t n = dims.back(), half = n / 2 + 1;
  std::vector<Complex> y;
  for (int64_t row = 0; row < Product(dims) / n; ++row) {
    for (int64_t k = 0; k < n; ++k) {
      Complex value = k < half ? x[row * half + k] : std::conj(x[row * half + n - k]);
      if (k == 0 || 2 * k == n) value = value.real();  // The imaginary parts of these elements are ignored.
      y.push_back(value);
    }
  }
  return y;
}

template <typename T>
void Check(FftOp::Kind kind, const Dims& dims, int transformed) {
  const bool from_real = kind == FftOp::RFFT, to_real = kind == FftOp::IRFFT;
  const ElementType real = sizeof(T) == 4 ? ElementType::kF32 : ElementType::kF64;
  const ElementType complex = sizeof(T) == 4 ? ElementType::kC64 : ElementType::kC128;
  Dims spectrum = dims;
  if (from_real || to_real) spectrum.back() = dims.back() / 2 + 1;
  const Dims &in = to_real ? spectrum : dims, &out = from_real ? spectrum : dims;
  FftOp op;
  op.set_kind(kind);
  op.set_dimensions(transformed);
  op.mutable_operand()->set_element_type(static_cast<int>(from_real ? real : complex));
  op.mutable_result()->set_element_type(static_cast<int>(to_real ? real : complex));
  for (const int64_t size : in) op.mutable_operand()->add_dims(size);
  for (const int64_t size : out) op.mutable_result()->add_dims(size);
  SCOPED_TRACE(op.ShortDebugString());

  const std::unique_ptr<Random> random = SeededRandom(11);
  const auto number = [&] { return static_cast<T>(static_cast<double>(random->Next() % 2001) / 1000 - 1); };
  std::vector<T> operand(static_cast<size_t>(Product(in) * (from_real ? 1 : 2)));
  std::vector<T> result(static_cast<size_t>(Product(out) * (to_real ? 1 : 2)), T(99));
  for (T& x : operand) x = number();

  const auto prepared = PrepareFft(op);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const auto call = (*prepared)->MakeCall(/*threads=*/1);
  ASSERT_TRUE(call.ok()) << call.status();
  std::vector<std::byte> memory(static_cast<size_t>((*prepared)->scratch_bytes(/*threads=*/1)) + 64);
  std::byte* const scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  const std::vector<T> before = operand;
  ThreadTeam team(1);
  ASSERT_TRUE((*call)->Run({operand.data(), result.data()}, scratch, team).ok());
  EXPECT_EQ(operand, before);

  std::vector<Complex> expected;
  for (int64_t i = 0; i < Product(in); ++i) {
    expected.push_back(from_real ? Complex(operand[i]) : Complex(operand[2 * i], operand[2 * i + 1]));
  }
  const size_t first = dims.size() - static_cast<size_t>(transformed);
  const bool inverse = kind == FftOp::IFFT || to_real;
  double scale = 1;
  if (to_real) {
    for (size_t d = first; d + 1 < dims.size(); ++d) expected = Defined(expected, in, d, true);
    expected = Defined(Completed(expected, dims), dims, dims.size() - 1, true);
  } else {
    for (size_t d = first; d < dims.size(); ++d) expected = Defined(expected, dims, d, inverse);
    if (from_real) expected = Halved(expected, dims);
  }
  for (size_t d = first; d < dims.size() && inverse; ++d) scale /= static_cast<double>(dims[d]);
  double error = 0, size = 1e-300;
  for (int64_t i = 0; i < Product(out); ++i) {
    const Complex found = to_real ? Complex(result[i]) : Complex(result[2 * i], result[2 * i + 1]);
    const Complex wanted = to_real ? Complex(expected[i].real() * scale) : expected[i] * scale;
    error += std::norm(found - wanted);
    size += std::norm(wanted);
  }
  EXPECT_LT(std::sqrt(error / size), sizeof(T) == 4 ? 6e-7 : 4e-15);
}

void CheckAll(const Dims& dims, int transformed) {
  for (const FftOp::Kind kind : {FftOp::FFT, FftOp::IFFT, FftOp::RFFT, FftOp::IRFFT}) {
    Check<float>(kind, dims, transformed);
    Check<double>(kind, dims, transformed);
  }
}

TEST(Fft, EveryLengthUpTo130) {
  for (int64_t n = 1; n <= 130; ++n) CheckAll({n}, 1);
}

// By default, there are powers of 2, 3, 5 and 7, products of several primes, and primes.
TEST(Fft, LongerLengths) {
  for (const int64_t n : {256, 257, 343, 360, 509, 512, 625, 729, 1001, 1024}) CheckAll({n}, 1);
  if (!AllCases()) return;
  for (const int64_t n : {240, 243, 1000, 1009, 1331, 2048}) CheckAll({n}, 1);
}

TEST(Fft, Batches) {
  for (const int64_t n : {1, 2, 3, 8, 17, 31, 64, 65, 67, 100, 128}) {
    for (const int64_t rows : {2, 4, 15, 16, 37}) CheckAll({rows, n}, 1);
  }
}

TEST(Fft, SeveralDimensions) {
  const std::vector<Dims> shapes = {{4, 8}, {5, 7}, {16, 16}, {3, 1}, {1, 9}, {67, 6}, {6, 67}, {2, 3, 4}, {4, 1, 6},
                                    {3, 24, 20}, {1, 1, 1}, {64, 2}, {9, 40, 3}};
  for (const Dims& dims : shapes) {
    for (int transformed = 2; transformed <= std::ssize(dims); ++transformed) CheckAll(dims, transformed);
  }
}

TEST(Fft, EmptyArrays) {
  for (const Dims& dims : {Dims{0, 4}, Dims{0, 3, 5}}) CheckAll(dims, 1);
}

TEST(Fft, RefusesShapesThatDoNotFit) {
  FftOp op;
  op.set_kind(FftOp::RFFT);
  op.set_dimensions(1);
  op.mutable_operand()->set_element_type(static_cast<int>(ElementType::kF32));
  op.mutable_result()->set_element_type(static_cast<int>(ElementType::kC64));
  op.mutable_operand()->add_dims(8);
  op.mutable_result()->add_dims(5);
  EXPECT_TRUE(PrepareFft(op).ok());
  for (const int dimensions : {0, 2, -1}) {
    FftOp bad = op;
    bad.set_dimensions(dimensions);
    EXPECT_EQ(PrepareFft(bad).status().code(), absl::StatusCode::kInvalidArgument);
  }
  FftOp bad = op;
  bad.mutable_result()->set_dims(0, 8);
  EXPECT_EQ(PrepareFft(bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = op;
  bad.mutable_operand()->set_element_type(static_cast<int>(ElementType::kC64));
  EXPECT_EQ(PrepareFft(bad).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace xlad::runtime
