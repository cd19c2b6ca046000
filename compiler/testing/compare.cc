#include "compiler/testing/compare.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tensor/small_float.h"

namespace xlad::compiler {
namespace {

using tensor::Array;
using tensor::ElementType;

// Real and imaginary part of element i of a float array; the second 0 where it is real.
std::pair<double, double> Number(const Array& array, size_t i) {
  switch (array.shape().type) {
    case ElementType::kF32: return {array.values<float>()[i], 0};
    case ElementType::kF64: return {array.values<double>()[i], 0};
    case ElementType::kC64: return {array.values<float>()[2 * i], array.values<float>()[2 * i + 1]};
    case ElementType::kC128: return {array.values<double>()[2 * i], array.values<double>()[2 * i + 1]};
    default: return {tensor::DecodeSmallFloat(array.shape().type, array.values<uint16_t>()[i]), 0};
  }
}

bool Near(double a, double b, double allowed) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  return std::abs(a - b) <= allowed;
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

absl::Status CompareWithin(const Array& found, const Array& expected, double error) {
  if (found.shape() != expected.shape()) {
    return absl::InternalError(absl::StrCat("found ", found.shape().ToString(), ", expected ",
                                            expected.shape().ToString()));
  }
  const ElementType type = found.shape().type;
  const bool numbers = tensor::IsFloating(type) || tensor::IsComplex(type);
  const size_t width = tensor::ByteWidth(type);
  for (size_t i = 0; i < static_cast<size_t>(found.elements()); ++i) {
    if (!numbers) {
      if (std::memcmp(&found.bytes()[i * width], &expected.bytes()[i * width], width) == 0) continue;
      return absl::InternalError(absl::StrCat("element ", i, " of ", found.shape().ToString(), ": found other bits"));
    }
    const auto [a, c] = Number(found, i);
    const auto [b, d] = Number(expected, i);
    if (Near(a, b, 4 * error) && Near(c, d, 4 * error)) continue;
    return absl::InternalError(absl::StrCat("element ", i, " of ", found.shape().ToString(), ": found ", a,
                                            ", expected ", b, " within ", error));
  }
  return absl::OkStatus();
}

absl::Status CompareAllWithin(const std::vector<Array>& found, const std::vector<Array>& expected,
                              const std::vector<double>& errors) {
  if (found.size() != expected.size() || found.size() != errors.size()) {
    return absl::InternalError(absl::StrCat("found ", found.size(), " results, expected ", expected.size()));
  }
  for (size_t r = 0; r < found.size(); ++r) {
    const absl::Status same = CompareWithin(found[r], expected[r], errors[r]);
    if (!same.ok()) return absl::InternalError(absl::StrCat("result ", r, ", ", std::string(same.message())));
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
