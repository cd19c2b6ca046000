// Element-wise reduction of arrays on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {

// Computes dst[i] = sources[0][i] (+) sources[1][i] (+) ..., from left to right. Floating-point types below 32 bits are
// accumulated in f32 and rounded once, to nearest even; integers wrap around; the sum of pred is "or", the product
// "and"; max and min with a NaN are NaN. `dst` may be equal to a source but must not overlap one partially. The result
// depends only on the values, not on `count` or alignment.
using ReduceFunction = void (*)(void* dst, absl::Span<const void* const> sources, int64_t count);

// Unimplemented if there is no kernel for the pair. ValidateSpec refuses pairs that have no meaning.
absl::StatusOr<ReduceFunction> FindReduceFunction(tensor::ElementType type, Reduction reduction);

}  // namespace xlad::collectives
