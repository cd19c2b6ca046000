// Products of f32 on systolic arrays, which multiply bf16 and add in f32.
//
// Precision default rounds both operands to bf16 (to nearest, ties to even) and computes one product. Precision high
// writes each operand as a sum of two bf16, x = hi + lo, and computes hi hi + (hi lo + lo hi): three products.
// Precision highest is computed in f32, which differs from six products of bf16 by less than 2^-20 of the sum of the
// absolute values of the addends; if an operand is infinite or NaN, high is computed in f32 as well, because lo does
// not exist. Products of other types are not changed.
#pragma once

#include <memory>

#include "absl/types/span.h"
#include "base/status.h"
#include "runtime/device.h"

namespace xlad::runtime {

// Loads native code (LoadNativeCode) whose library ops are such products. Dots and convolutions that are part of a
// native program are not: compile without them (CompileToSteps does, for a target with a chip).
absl::StatusOr<std::unique_ptr<LoadedExecutable>> LoadWithSystolicProducts(Executable executable);

// Each value rounded to bf16; the sizes are equal.
void RoundToBf16(absl::Span<const float> values, absl::Span<float> rounded);
// rest[i] = values[i] - rounded[i], rounded to bf16. False if a value is infinite or NaN or rounds to infinity.
bool SplitBf16(absl::Span<const float> values, absl::Span<float> rounded, absl::Span<float> rest);

}  // namespace xlad::runtime
