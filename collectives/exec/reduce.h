// Element-wise reduction of arrays on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {

// dst[i] = sources[0][i] (+) sources[1][i] (+) ..., from left to right. Types below 32 bits are combined in f32 and
// rounded once, to nearest even; integers wrap around; sum of pred is `or`, product `and`; max and min of NaN are NaN.
// `dst` may be the same memory as a source, but not overlap one partly. Bits depend on nothing but the values.
using ReduceFunction = void (*)(void* dst, absl::Span<const void* const> sources, int64_t count);

// Unimplemented where there is no kernel for the pair; ValidateSpec says which pairs make sense.
absl::StatusOr<ReduceFunction> FindReduceFunction(tensor::ElementType type, Reduction reduction);

}  // namespace xlad::collectives
