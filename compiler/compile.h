// Compiles a partitioned module to an Executable.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/subprocess.h"
#include "compiler/buffers/assignment.h"
#include "compiler/pipeline.h"
#include "compiler/steps/step_program.h"
#include "hlo/module.h"
#include "proto/compile.pb.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// Everything between the request and the object code; for tests and views.
struct Compilation {
  std::unique_ptr<hlo::Module> module;  // After the passes; `program` and `steps` refer to it.
  Program program;
  Assignment assignment;
  StepProgram steps;  // Loops as steps.
  std::vector<PassTime> times;
};

struct CompileOptions {
  bool verify = false;  // The verifier after every pass.
};

// Reads, verifies and runs the passes, the buffer assignment (and its checker) and the step builder.
// request.parameters and results may be empty; else their number must be that of the entry's leaves.
absl::StatusOr<Compilation> CompileToSteps(const CompileRequest& request, const CompileOptions& options = {});
// The same for a module that was read and verified; request.partitioned_module is not looked at.
absl::StatusOr<Compilation> CompileToSteps(std::unique_ptr<hlo::Module> module, const CompileRequest& request,
                                           const CompileOptions& options = {});

// In this process. Errors: InvalidArgument for a bad module, Unimplemented naming the instruction for what has no
// code, Internal for xlad's own mistakes.
struct CompileResult {
  Executable executable;
  std::vector<PassTime> times;
  std::string ir, assembly;  // Where `want_listings` was set.
};
absl::StatusOr<CompileResult> CompileWithListings(const CompileRequest& request, const CompileOptions& options,
                                                  bool want_listings);
absl::StatusOr<Executable> Compile(const CompileRequest& request);

// The child's main: a CompileRequest from standard input, a CompileResponse to standard output. Returns the exit
// code: 0 where a response was written, be it an error.
int RunCompileChild();

// Runs `program_path __compile` and waits. A crash, a time or memory limit and a nonsensical answer are one error
// each, which says what happened and quotes the child's last words. Returns the serialised Executable.
absl::StatusOr<std::string> CompileInChild(const CompileRequest& request, const std::string& program_path,
                                           const ChildLimits& limits);

}  // namespace xlad::compiler
