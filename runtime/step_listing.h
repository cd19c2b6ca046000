// Lists the steps of an executable for profiles and traces.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "proto/executable.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::runtime {

// All steps, including nested ones, in the order of their numbers (StepTimes). The pointers are valid as long as the
// executable.
std::vector<const Step*> NumberedSteps(const Executable& executable);

// "kernel", "dot", "convolution", "fft", "lapack", "attention", "collective", "wait" (for a collective that an earlier
// step started), "copy", "loop" or "branch".
absl::string_view StepKind(const Executable& executable, const Step& step);

}  // namespace xlad::runtime
