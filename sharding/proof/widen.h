// Converts programs to wider floating-point types, for comparisons that rounding errors must not disturb.
#pragma once

#include "sharding/partition/partition.h"

namespace xlad::sharding {

// Converts every float of the module to f64 and every complex number to c128, in place. Sums in different orders then
// differ by a relative error of about 1e-16 only, which the divisions of an optimizer cannot make large. Instructions
// keep their addresses, so that a SourceMap remains valid. A bitcast-convert still uses the bits of the narrow type. A
// reduce-precision no longer rounds. A call to a LAPACK routine becomes a call to the routine for the wide type. Fails
// if a constant cannot be converted to f64.
absl::Status Widen(hlo::Module* module);
absl::Status Widen(PartitionedProgram* program);
absl::StatusOr<std::vector<hlo::Literal>> Widen(const std::vector<hlo::Literal>& values);

}  // namespace xlad::sharding
