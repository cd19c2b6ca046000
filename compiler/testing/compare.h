// Comparing what two right ways to compute a program give.
#pragma once

#include <vector>

#include "base/status.h"
#include "hlo/literal.h"

namespace xlad::compiler {

// The arrays of a literal, in order.
std::vector<tensor::Array> ArraysOf(const hlo::Literal& literal);

// `error` is by how much elements may differ (a small multiple of it is allowed); at 0 they must be equal, integers in
// every bit, floats as numbers. The first difference is the error: "element 3: found 1.5, expected 2 within 0".
absl::Status CompareWithin(const tensor::Array& found, const tensor::Array& expected, double error);
absl::Status CompareAllWithin(const std::vector<tensor::Array>& found, const std::vector<tensor::Array>& expected,
                              const std::vector<double>& errors);

}  // namespace xlad::compiler
