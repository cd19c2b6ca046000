// The step program of an executable, built from a LinearProgram and its buffer assignment.
//
// A step is what the runtime executes (proto Step in proto/executable.proto): a kernel, a library op, a collective, a
// copy, or a while or conditional over lists of steps. Equal instructions share one kernel
// (compiler/analysis/same_code.h).
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/buffers/buffer_assignment.h"
#include "compiler/kernel/object_emitter.h"
#include "compiler/kernel/schedule_tables.h"

namespace xlad::compiler {

struct StepProgram {
  std::vector<Step> steps;
  std::vector<KernelRequest> kernels;  // Each kernel once. They refer to instructions of the module.
  std::vector<LibraryOp> library_ops;
  std::vector<CollectiveSpec> collectives;
  bool native_loops = true;  // Whether EmitCode makes native programs of loops (MakeNativeLoops).
};

struct StepOptions {
  int64_t devices = 1;          // Groups and pairs of collectives are checked against it.
  bool check_numerics = false;  // Fill Step.checked_operands and Step.checked_results.
  ReductionMode reduction_mode = RUN_TO_RUN;  // All collectives that reduce have this mode.
  const ScheduleTables* schedules = nullptr;  // Kernel schedules other than the compiler's own; may be null.
  bool one_row_tiles = false;  // Kernels in row form have a tile for each row, which is a block of a GPU.
};

// While and conditional operations stay lists of steps here; MakeNativeLoops compiles them. Errors are those of
// MakeCollectiveSpec, and InvalidArgument for a kernel schedule that does not fit the program.
absl::StatusOr<StepProgram> BuildSteps(const LinearProgram& program, const BufferAssignment& assignment,
                                       const StepOptions& options);

// A while or conditional step that became one kernel step.
struct NativeLoop {
  NativeProgramRequest request;
  KernelStep* step = nullptr;  // Points into the steps; the caller sets its scratch_bytes to the result of EmitProgram.
};

// Replaces every outermost while and conditional step without collectives by one kernel step, whose code is to be
// emitted from the returned request, so that the runtime is not entered in each iteration. The facts of the
// kernel steps inside must be set. The pointers are valid until `steps` changes.
std::vector<NativeLoop> MakeNativeLoops(std::vector<Step>* steps);

// Sets scratch_bytes and tiles of every kernel step, nested ones included, from its symbol.
void SetKernelFacts(std::vector<Step>* steps, const absl::flat_hash_map<std::string, EmittedKernel>& kernels);

}  // namespace xlad::compiler
