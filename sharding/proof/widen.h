// Programs in wider numbers, for comparisons that rounding must not disturb.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

// Makes every float of the module an f64 and every complex number a c128, in place: what two orders of a sum differ by
// is then 1e-16, and no optimizer that divides small by small can make it large. Instructions stay where they are, so
// that a SourceMap stays valid. Bits of floats (bitcast-convert) stay those of the narrow type; roundings to fewer bits
// (reduce-precision) no longer take place. Errors: a constant that has no f64.
absl::Status Widen(hlo::Module* module);
absl::Status Widen(PartitionedProgram* program);
absl::StatusOr<std::vector<hlo::Literal>> Widen(const std::vector<hlo::Literal>& values);

}  // namespace xlad::sharding
