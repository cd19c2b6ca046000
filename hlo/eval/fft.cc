// fft: the forward and inverse discrete Fourier transform over the last dimensions, of complex or real numbers. All
// types are computed in long double.
#include <cmath>
#include <numbers>

#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

using Number = std::complex<long double>;

// Returns out[k] = sum over n of x[n] e^(s 2 pi i n k / N). N is the length of `x`, and s is -1 for the forward
// transform and 1 for the inverse. Uses the radix-2 algorithm of Cooley and Tukey (1965) while N is even and at least
// 4, and computes the remaining sums directly. roots[j] is e^(s 2 pi i j / (N * step)).
std::vector<Number> Transform(const std::vector<Number>& x, const std::vector<Number>& roots, size_t step) {
  const size_t n = x.size();
  std::vector<Number> out(n);
  if (n % 2 != 0 || n < 4) {
    for (size_t k = 0; k < n; ++k) {
      for (size_t i = 0; i < n; ++i) out[k] += x[i] * roots[(i * k % n) * step];
    }
    return out;
  }
  std::vector<Number> even, odd;
  for (size_t i = 0; i < n; i += 2) {
    even.push_back(x[i]);
    odd.push_back(x[i + 1]);
  }
  even = Transform(even, roots, step * 2);
  odd = Transform(odd, roots, step * 2);
  for (size_t k = 0; k < n / 2; ++k) {
    const Number turned = roots[k * step] * odd[k];
    out[k] = even[k] + turned;
    out[k + n / 2] = even[k] - turned;
  }
  return out;
}

// The n-th roots of unity, counterclockwise for the inverse transform, otherwise clockwise.
std::vector<Number> Roots(size_t n, bool inverse) {
  std::vector<Number> roots;
  for (size_t i = 0; i < n; ++i) {
    const long double angle = 2 * std::numbers::pi_v<long double> * i / n;
    roots.emplace_back(std::cos(angle), inverse ? std::sin(angle) : -std::sin(angle));
  }
  return roots;
}

// Transforms each line of dimension `d` of a row-major array in place. The inverse transform divides by the length.
void TransformDimension(std::vector<Number>* data, const Dims& dims, int64_t d, bool inverse) {
  const int64_t size = dims[d], stride = tensor::Strides(dims)[d];
  const std::vector<Number> roots = Roots(size, inverse);
  std::vector<Number> line(size);
  for (const int64_t first : tensor::Indices(*data)) {
    if (first / stride % size != 0) continue;
    for (int64_t i = 0; i < size; ++i) line[i] = (*data)[first + i * stride];
    const std::vector<Number> out = Transform(line, roots, 1);
    for (int64_t i = 0; i < size; ++i) (*data)[first + i * stride] = inverse ? out[i] / (1.0L * size) : out[i];
  }
}

// The first `kept` elements of each line of `size` elements.
std::vector<Number> CutLast(const std::vector<Number>& data, int64_t size, int64_t kept) {
  std::vector<Number> out;
  for (const int64_t i : tensor::Indices(data)) {
    if (i % size < kept) out.push_back(data[i]);
  }
  return out;
}

// Extends each line of `size` elements to the spectrum of a real signal of length N = `full`, by x[N - k] = conj(x[k]).
std::vector<Number> MirrorLast(const std::vector<Number>& data, int64_t size, int64_t full) {
  std::vector<Number> out;
  for (int64_t first = 0; first < std::ssize(data); first += size) {
    for (int64_t k = 0; k < full; ++k) {
      const bool mirrored = k >= size;
      const Number value = data[first + (mirrored ? full - k : k)];
      out.push_back(mirrored ? std::conj(value) : value);
    }
    // At k = 0 and k = N / 2 the spectrum of a real signal is real; imaginary parts are ignored.
    out[out.size() - full].imag(0);
    if (full % 2 == 0) out[out.size() - full / 2].imag(0);
  }
  return out;
}

std::vector<Number> ReadNumbers(const Value& value) {
  const Value wide = ConvertTo(value, ElementType::kC128);
  std::vector<Number> numbers;
  for (const Complex128& number : wide.values<Complex128>()) numbers.emplace_back(number.real(), number.imag());
  return numbers;
}

Value WriteNumbers(const std::vector<Number>& numbers, const tensor::Shape& shape) {
  Array out({ElementType::kC128, shape.dims});
  for (const int64_t i : tensor::Indices(numbers)) {
    out.values<Complex128>()[i] = {static_cast<double>(numbers[i].real()), static_cast<double>(numbers[i].imag())};
  }
  return ConvertTo(Value(std::move(out)), shape.type);
}

absl::StatusOr<Value> EvalFft(const Operation& operation) {
  const Attributes& attributes = operation.attributes();
  const tensor::Shape& result = operation.result();
  const std::string& type = attributes.fft_type;
  const bool inverse = type == "IFFT" || type == "IRFFT", to_real = type == "IRFFT";
  const Value& operand = operation.operand(0);
  if (result.elements() == 0 || operand.elements() == 0) return Value(Array(result));
  std::vector<Number> data = ReadNumbers(operand);
  Dims dims = operand.dims();
  const int64_t last = std::ssize(dims) - 1, first = std::ssize(dims) - std::ssize(attributes.fft_length);
  // The elements are real before an RFFT and after an IRFFT. Therefore the last dimension is the first one that RFFT
  // transforms, and the last one that IRFFT transforms.
  if (!to_real) TransformDimension(&data, dims, last, inverse);
  if (type == "RFFT") {
    data = CutLast(data, dims[last], result.dims[last]);
    dims[last] = result.dims[last];
  }
  for (int64_t d = first; d < last; ++d) TransformDimension(&data, dims, d, inverse);
  if (to_real) {
    data =
        MirrorLast(CutLast(data, dims[last], result.dims[last] / 2 + 1), result.dims[last] / 2 + 1, result.dims[last]);
    dims[last] = result.dims[last];
    TransformDimension(&data, dims, last, inverse);
  }
  return WriteNumbers(data, result);
}

constexpr EvalRow kFftRows[] = {{Opcode::kFft, EvalFft}};

}  // namespace

absl::Span<const EvalRow> FftRows() { return kFftRows; }

}  // namespace xlad::hlo::eval
