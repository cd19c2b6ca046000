#include "compiler/testing/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tensor/small_float.h"

namespace xlad::compiler {
namespace {

using tensor::Array;
using tensor::ElementType;

// The real and imaginary part of a floating-point or complex element. The imaginary part is 0 for a real type.
using Parts = std::array<double, 2>;

Parts Number(const Array& array, size_t i) {
  switch (array.shape().type) {
    case ElementType::kF32: return {array.values<float>()[i], 0};
    case ElementType::kF64: return {array.values<double>()[i], 0};
    case ElementType::kC64: return {array.values<float>()[2 * i], array.values<float>()[2 * i + 1]};
    case ElementType::kC128: return {array.values<double>()[2 * i], array.values<double>()[2 * i + 1]};
    case ElementType::kF16:
    case ElementType::kBF16: return {tensor::DecodeSmallFloat(array.shape().type, array.values<uint16_t>()[i]), 0};
    default: return {tensor::DecodeSmallFloat(array.shape().type, array.values<uint8_t>()[i]), 0};
  }
}

// The largest difference that is allowed, if `error` is positive.
double Tolerance(const Exactness& exactness) { return 4 * exactness.error; }

bool Agree(double a, double b, const Exactness& exactness) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) {
    return exactness.error > 0 || exactness.agreement == Agreement::kMagnitudes || std::signbit(a) == std::signbit(b);
  }
  return std::abs(a - b) <= Tolerance(exactness);
}

std::string Describe(const Array& array, size_t i, bool is_number) {
  const size_t width = tensor::ByteWidth(array.shape().type);
  std::string bits = "0x";
  for (size_t b = width; b-- > 0;) {
    absl::StrAppend(&bits, absl::Hex(static_cast<int>(array.bytes()[i * width + b]), absl::kZeroPad2));
  }
  if (!is_number) return bits;
  const auto [real, imaginary] = Number(array, i);
  const std::string number = imaginary == 0 ? absl::StrCat(real) : absl::StrCat("(", real, ", ", imaginary, ")");
  return absl::StrCat(number, " (", bits, ")");
}

}  // namespace

std::vector<Array> ArraysOf(const hlo::Literal& literal) {
  if (!literal.is_tuple) return {literal.array};
  std::vector<Array> arrays;
  for (const hlo::Literal& element : literal.tuple) {
    for (Array& array : ArraysOf(element)) arrays.push_back(std::move(array));
  }
  return arrays;
}

absl::Status CompareArrays(const Array& found, const Array& expected, const Exactness& exactness) {
  if (found.shape() != expected.shape()) {
    return absl::InternalError(absl::StrCat("found ", found.shape().ToString(), ", expected ",
                                            expected.shape().ToString()));
  }
  const ElementType type = found.shape().type;
  const bool is_number = tensor::IsFloating(type) || tensor::IsComplex(type);
  const bool by_bits = !is_number || (exactness.error == 0 && exactness.agreement == Agreement::kBits);
  const size_t width = tensor::ByteWidth(type), elements = found.elements();
  for (size_t i = 0; i < elements; ++i) {
    if (std::memcmp(&found.bytes()[i * width], &expected.bytes()[i * width], width) == 0) continue;
    if (!by_bits) {
      const Parts a = Number(found, i), b = Number(expected, i);
      if (Agree(a[0], b[0], exactness) && Agree(a[1], b[1], exactness)) continue;
    }
    const std::string within = exactness.error > 0 ? absl::StrCat(" within ", Tolerance(exactness)) : "";
    return absl::InternalError(absl::StrCat("element ", i, " of ", found.shape().ToString(), ": found ",
                                            Describe(found, i, is_number), ", expected ",
                                            Describe(expected, i, is_number), within));
  }
  return absl::OkStatus();
}

absl::Status CompareResults(const std::vector<Array>& found, const std::vector<Array>& expected,
                            const std::vector<Exactness>& exactness) {
  if (found.size() != expected.size() || found.size() != exactness.size()) {
    return absl::InternalError(absl::StrCat("found ", found.size(), " results, expected ", expected.size(), ", with ",
                                            exactness.size(), " tolerances, expected one for each"));
  }
  for (size_t r = 0; r < found.size(); ++r) {
    const absl::Status status = CompareArrays(found[r], expected[r], exactness[r]);
    if (!status.ok()) return absl::InternalError(absl::StrCat("result ", r, ", ", std::string(status.message())));
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
