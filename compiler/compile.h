// Compiles a partitioned module to an Executable.
//
//   CompileRequest (HLO) -> passes (pipeline.h) -> LinearProgram -> BufferAssignment -> StepProgram -> object code
//
// All functions may be called from several threads at once.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/buffers/buffer_assignment.h"
#include "compiler/codegen/object_cache.h"
#include "compiler/pipeline.h"
#include "compiler/steps/step_program.h"
#include "hlo/module.h"
#include "proto/compile.pb.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

// Everything between the request and the object code, for tests and listings.
struct Compilation {
  std::unique_ptr<hlo::Module> module;  // The module after the passes. `program` and `steps` refer to it.
  LinearProgram program;
  BufferAssignment assignment;
  // If the program without changes exceeds the memory limit, the bytes that it needs; otherwise 0. If this is not 0,
  // operations of `program` may be repeated to save memory (buffers/rematerialize.h).
  int64_t usual_bytes = 0;
  // What was changed to save memory, besides repeated operations. Either may change the order of sums.
  bool keeps_loops_small = false;    // Whether loops hold no packed or stored operands of dots.
  bool fuses_all_attention = false;  // Whether all attention was fused.
  StepProgram steps;  // The steps. Loops are lists of steps here, not native programs.
  std::vector<PassTime> times;
};

struct CompileOptions {
  bool verify = false;  // Whether to run the verifier after every pass.
  // kByCost has the effect of kAlways if the program would otherwise exceed the memory limit of the request.
  AttentionChoice attention = AttentionChoice::kByCost;
  // If not null, receives the costs of all recognized attention.
  std::vector<AttentionCost>* attention_costs = nullptr;
  // If not null, objects of earlier compilations are taken from it, and new ones are added to it. Not used for GPUs or
  // if listings are wanted.
  ObjectCache* objects = nullptr;
  // Whether objects that are not in `objects` are compiled quickly (EmitOptions.quick). Ignored if a loop has an
  // unknown trip count, if all steps with compiled code could then take more than about a second together, or if the
  // program observes the signs or payloads of NaNs. Executable.quick says whether there is such an object.
  bool quick = false;
};

// Reads and verifies the module, runs the passes, assigns and checks buffers, and builds the steps.
// `request.parameters` is empty or has one entry for each leaf of the parameters of the module's entry computation.
// `request.results` is empty or has one entry for each leaf of its result.
absl::StatusOr<Compilation> CompileToSteps(const CompileRequest& request, const CompileOptions& options = {});
// The same for a module that has already been read and verified. Ignores `request.partitioned_module`.
absl::StatusOr<Compilation> CompileToSteps(std::unique_ptr<hlo::Module> module, const CompileRequest& request,
                                           const CompileOptions& options = {});

struct CompileResult {
  Executable executable;
  std::unique_ptr<hlo::Module> module;  // The module after the passes. Its instructions have the names of the steps.
  std::vector<PassTime> times;
  std::string ir, assembly;  // Empty unless `want_listings`.
  // The number of objects (kernels and native programs) that LLVM has compiled, and of those from the cache.
  int64_t compiled_objects = 0, reused_objects = 0;
};
// Compiles in this process. InvalidArgument for an invalid module or request. Unimplemented, naming the instruction, if
// there is no code for an instruction. ResourceExhausted if the program does not fit into the memory limit or is too
// large to compile. Internal for a bug in the compiler.
absl::StatusOr<CompileResult> CompileWithListings(const CompileRequest& request, const CompileOptions& options,
                                                  bool want_listings);
absl::StatusOr<Executable> Compile(const CompileRequest& request);

}  // namespace xlad::compiler
