// The step program of an executable, built from a LinearProgram and its buffer assignment.
//
// A step is what the runtime executes (proto Step in proto/executable.proto): a kernel, a library op, a collective, the
// end of a collective that runs in the background, a copy, or a while or conditional over lists of steps. Equal
// instructions share one kernel (compiler/analysis/same_code.h).
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
  std::vector<KernelRequest> kernels;  // Each kernel once. The requests refer to instructions of the module.
  std::vector<LibraryOp> library_ops;
  std::vector<CollectiveSpec> collectives;
  bool native_loops = true;  // Whether EmitCode makes native programs of loops and branches (MakeNativeLoops).
};

struct StepOptions {
  int64_t devices = 1;                        // Device ids in groups and pairs of collectives must be less than this.
  bool check_numerics = false;                // Whether to set Step.checked_operands and Step.checked_results.
  ReductionMode reduction_mode = RUN_TO_RUN;  // All collectives that reduce have this mode.
  const ScheduleTables* schedules = nullptr;  // Kernel schedules that replace the compiler's own. May be null.
  bool one_row_tiles = false;  // Whether kernels in row form have one tile per row. On a GPU, a tile is a block.
};

// While and conditional operations become steps with lists of steps. MakeNativeLoops can make native programs of them
// later. Errors are those of MakeCollectiveSpec, and InvalidArgument if a kernel schedule does not fit the program.
absl::StatusOr<StepProgram> BuildSteps(const LinearProgram& program, const BufferAssignment& assignment,
                                       const StepOptions& options);

// A while or conditional step that became one kernel step.
struct NativeLoop {
  NativeProgramRequest request;
  KernelStep* step = nullptr;  // Points into the steps. The caller sets its scratch_bytes to the result of EmitProgram.
};

// Replaces every outermost while and conditional step without collectives with one kernel step, so that iterations do
// not return to the runtime. The code of the kernel step must be emitted from the returned request. scratch_bytes and
// tiles of the nested kernel steps must have been set (SetKernelFacts). The pointers are valid until `steps` changes.
std::vector<NativeLoop> MakeNativeLoops(std::vector<Step>* steps);

// Sets scratch_bytes and tiles of every kernel step, including nested steps. `kernels` maps symbols to these values. A
// step whose symbol is not in the map is not changed.
void SetKernelFacts(std::vector<Step>* steps, const absl::flat_hash_map<std::string, EmittedKernel>& kernels);
// Replaces the symbol of every kernel step, including nested steps. `symbols` maps old symbols to new ones. A step
// whose symbol is not in the map is not changed.
void RenameKernels(std::vector<Step>* steps, const absl::flat_hash_map<std::string, std::string>& symbols);

}  // namespace xlad::compiler
