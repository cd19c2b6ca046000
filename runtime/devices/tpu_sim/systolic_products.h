// Products of f32 on systolic arrays, which multiply bf16 and add in f32.
//
// Precision default rounds both operands to bf16 (to nearest, ties to even) and computes one product. Precision high
// approximates each operand by a sum of two bf16, hi + lo, and computes three products: hi hi + (hi lo + lo hi). If an
// element of an operand is infinite or NaN, or rounds to infinity, it has no lo, and the product is computed in f32.
// Precision highest is always computed in f32. A systolic array would compute six products of bf16; its result would
// differ by less than 2^-20 times the sum of the addends' absolute values. Products of other types are not changed.
#pragma once

#include <memory>

#include "absl/types/span.h"
#include "base/status.h"
#include "runtime/device.h"

namespace xlad::runtime {

// Loads native code (LoadNativeCode), and computes its library ops that are products of f32 as described above. Dots
// and convolutions inside the native code are not changed, so the code must be compiled without them (CompileToSteps
// does this for a target with a chip).
absl::StatusOr<std::unique_ptr<LoadedExecutable>> LoadWithSystolicProducts(Executable executable);

// Rounds each value to bf16. The sizes must be equal.
void RoundToBf16(absl::Span<const float> values, absl::Span<float> rounded);
// rest[i] = values[i] - rounded[i], rounded to bf16. Returns false if a value is infinite or NaN or rounds to infinity.
bool SplitBf16(absl::Span<const float> values, absl::Span<float> rounded, absl::Span<float> rest);

}  // namespace xlad::runtime
