// Machine code for the kernels and native programs of a step program, compiled in several threads.
#pragma once

#include <string>
#include <vector>

#include "compiler/steps/step_program.h"

namespace xlad::compiler {

struct EmittedCode {
  Target target;             // The target, with all fields set.
  std::string object;        // In the format of BundleObjects in compiler/kernel/object_emitter.h.
  std::vector<Step> steps;   // The program's steps, including native programs, with all scratch sizes set.
  std::string ir, assembly;  // Empty unless `want_listings`.
};

// Distributes kernels over objects (one object for PTX) and compiles these in as many threads as there are cores. A
// native program and the kernels that it calls are in one object, so that the kernels can be inlined. The distribution
// depends only on the program and the target, not on the number of cores, so that equal programs have equal code.
// Errors are those of ObjectEmitter.
absl::StatusOr<EmittedCode> EmitCode(const Target& target, const StepProgram& program, bool want_listings);

}  // namespace xlad::compiler
