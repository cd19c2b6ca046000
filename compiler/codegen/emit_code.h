// Machine code for the kernels and native programs of a step program, compiled in several threads.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/object_cache.h"
#include "compiler/steps/step_program.h"

namespace xlad::compiler {

struct EmitOptions {
  bool want_listings = false;      // Whether EmittedCode gets `ir` and `assembly`.
  ObjectCache* objects = nullptr;  // Not used for GPUs or if listings are wanted. May be null.
  // Objects that `objects` does not have are compiled quickly and not added to it, except for those of negligible
  // kernels. Ignored for GPUs.
  bool quick = false;
};

struct EmittedCode {
  Target target;             // The target, with all fields set.
  std::string object;        // In the format of BundleObjects in compiler/kernel/object_emitter.h. May be empty.
  std::vector<Step> steps;   // The program's steps, including native programs, with all symbols and scratch sizes set.
  std::string ir, assembly;  // Empty unless `want_listings`.
  int64_t compiled = 0;      // The number of objects that LLVM has compiled.
  int64_t reused = 0;        // The number of objects that `objects` had.
  bool quick = false;        // Whether an object was compiled quickly because of EmitOptions.quick.
};

// For CPUs, every kernel and every native program is an object, whose symbols begin with a hash of its code before
// optimization. A native program also has copies of the kernels that can be inlined into it. Equal kernels are compiled
// once. Therefore, unless `quick` is set, the code of a program is the same whether its objects are compiled or taken
// from `objects`, and equal programs have equal code. The objects are compiled in at most UsableThreads() threads
// (base/process/cores.h).
//
// Kernels are negligible if, by a high estimate, they take a very small share of a step even if LLVM does not optimize
// them. They are always compiled quickly. Which kernels are negligible depends only on the program.
//
// For GPUs, the kernels keep their symbols. PTX is one object; code of simulated GPUs has an object for each kernel.
// Errors are those of ObjectEmitter.
absl::StatusOr<EmittedCode> EmitCode(const Target& target, const StepProgram& program, const EmitOptions& options);

}  // namespace xlad::compiler
