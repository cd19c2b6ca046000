// Code for the kernels and native programs of a step program, made on several cores.
#pragma once

#include <string>
#include <vector>

#include "compiler/steps/step_program.h"

namespace xlad::compiler {

struct EmittedCode {
  Target target;            // With all fields filled in.
  std::string object;       // As BundleObjects of compiler/kernel/emit.h makes it.
  std::vector<Step> steps;  // The program's, with native programs in place and all scratch sizes.
  std::string ir, assembly;  // Where listings are wanted.
};

// The kernels are dealt to a few objects, those that a native program calls to one and the same, and each object is
// optimised in a thread of its own. How they are dealt depends on the program alone, so that its code does too.
absl::StatusOr<EmittedCode> EmitCode(const Target& target, const StepProgram& program, bool want_listings);

}  // namespace xlad::compiler
