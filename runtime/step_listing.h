// The steps of an executable as profiles and traces name them.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "proto/executable.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::runtime {

// All steps in the order of their numbers (StepTimes), nested ones included. The pointers are into the executable.
std::vector<const Step*> NumberedSteps(const Executable& executable);

// "kernel", "dot", "convolution", "fft", "lapack", "attention", "collective", "wait" (for a collective that an earlier
// step started), "copy", "loop" or "branch".
absl::string_view StepKind(const Executable& executable, const Step& step);

}  // namespace xlad::runtime
