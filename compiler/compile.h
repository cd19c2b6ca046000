// Compiles a partitioned module to an Executable.
//
//   CompileRequest (HLO) -> passes (pipeline.h) -> LinearProgram -> BufferAssignment -> StepProgram -> object code
//
// The coordinator compiles in a child process (CompileInChild), so that a crash, a time limit or a memory limit fails
// one build only. All functions may be called from several threads at once.
#pragma once

#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/status.h"
#include "compiler/buffers/buffer_assignment.h"
#include "compiler/pipeline.h"
#include "compiler/steps/step_program.h"
#include "hlo/module.h"
#include "proto/compile.pb.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// Everything between the request and the object code, for tests and listings.
struct Compilation {
  std::unique_ptr<hlo::Module> module;  // After the passes. `program` and `steps` refer to it.
  LinearProgram program;
  BufferAssignment assignment;
  StepProgram steps;  // Loops are lists of steps, not yet native.
  std::vector<PassTime> times;
};

struct CompileOptions {
  bool verify = false;  // Run the verifier after every pass.
};

// Reads and verifies the module, runs the passes, assigns and checks buffers, and builds the steps.
// `request.parameters` and `request.results` are either empty or have one entry for each leaf of the module's entry
// computation.
absl::StatusOr<Compilation> CompileToSteps(const CompileRequest& request, const CompileOptions& options = {});
// The same for a module that was read and verified before. Ignores `request.partitioned_module`.
absl::StatusOr<Compilation> CompileToSteps(std::unique_ptr<hlo::Module> module, const CompileRequest& request,
                                           const CompileOptions& options = {});

// Compiles in this process. Errors: InvalidArgument for a bad module, Unimplemented naming the instruction for which
// there is no code, Internal for a bug in the compiler.
struct CompileResult {
  Executable executable;
  std::unique_ptr<hlo::Module> module;  // After the passes: its instructions have the names of the steps.
  std::vector<PassTime> times;
  std::string ir, assembly;  // Empty unless `want_listings`.
};
absl::StatusOr<CompileResult> CompileWithListings(const CompileRequest& request, const CompileOptions& options,
                                                  bool want_listings);
absl::StatusOr<Executable> Compile(const CompileRequest& request);

// The main function of the child process: reads a CompileRequest from standard input and writes a CompileResponse to
// standard output. Returns the exit code: 0 if a response was written, even if it holds an error.
int RunCompileChild();

// Runs `program_path __compile` and waits for it. Returns the serialized Executable. A crash, an exceeded limit or an
// unreadable response is one error, which says what happened and quotes the end of the child's standard error.
absl::StatusOr<std::string> CompileInChild(const CompileRequest& request, const std::string& program_path,
                                           const ChildLimits& limits);

}  // namespace xlad::compiler
