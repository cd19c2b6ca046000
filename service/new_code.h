// The check of optimized code before it replaces quickly compiled code.
#pragma once

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::service {

// OK if workers that run `quick` can change to `optimized` between two steps: `optimized` has no quickly compiled code,
// and everything besides the code of the kernels is the same. Otherwise InvalidArgument with the first difference.
absl::Status CheckReplaces(const Executable& quick, const Executable& optimized);

}  // namespace xlad::service
