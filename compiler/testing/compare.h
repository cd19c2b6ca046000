// How closely the results of two correct computations of one program must agree, and the comparison itself.
#pragma once

#include <vector>

#include "base/status.h"
#include "hlo/literal.h"

namespace xlad::compiler {

// The properties in which two correct computations of an array agree, strictest first. If two requirements apply, the
// weaker one (std::max) is used.
enum class Agreement {
  kBits,        // All bits, including NaN payloads: integers, data movement, bitcasts, selections.
  kNumbers,     // Equal numbers, and zeros with equal signs, but any NaN equals any other: floating-point arithmetic.
  kSums,        // Compared like kNumbers: sums, if later instructions may be applied to their parts on the devices.
  kMagnitudes,  // Like kNumbers, but -0 equals +0: dots, and arithmetic that may be applied to the parts of a sum.
};

struct Exactness {
  Agreement agreement = Agreement::kNumbers;
  // Floating-point elements may differ by up to four times this. If it is positive, `agreement` is ignored.
  double error = 0;
};

// The leaf arrays of a literal, in tuple order.
std::vector<tensor::Array> ArraysOf(const hlo::Literal& literal);

// Internal if the arrays differ. The error states both shapes or the first difference: "element 3 of f32[8]: found 1.5
// (0x3fc00000), expected 2 (0x40000000)".
absl::Status CompareArrays(const tensor::Array& found, const tensor::Array& expected, const Exactness& exactness);
// Compares arrays pairwise. The three lists must have the same length.
absl::Status CompareResults(const std::vector<tensor::Array>& found, const std::vector<tensor::Array>& expected,
                            const std::vector<Exactness>& exactness);

}  // namespace xlad::compiler
