// The step program of an executable, built from ops with buffers.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/buffers/assignment.h"
#include "compiler/kernel/emit.h"

namespace xlad::compiler {

struct StepProgram {
  std::vector<Step> steps;
  std::vector<KernelRequest> kernels;  // By symbol, each once; refer to the module's instructions.
  std::vector<LibraryOp> library_ops;
  std::vector<CollectiveSpec> collectives;
};

// `devices` of the mesh; groups and pairs are checked against it. While and conditional steps stay step lists,
// whatever is in them; see NativeLoops.
absl::StatusOr<StepProgram> BuildSteps(const Program& program, const Assignment& assignment, int64_t devices);

// Makes every while and conditional step without collectives a native program: one kernel step and one request.
// KernelStep.scratch_bytes of `steps` must be filled in.
struct NativeLoop {
  NativeProgramRequest request;
  KernelStep* step = nullptr;  // In `steps`; its scratch_bytes are to be filled in from EmitProgram.
};
std::vector<NativeLoop> MakeNativeLoops(std::vector<Step>* steps);

// Fills in scratch_bytes of every kernel step, nested ones too, by symbol.
void SetScratch(std::vector<Step>* steps, const absl::flat_hash_map<std::string, int64_t>& bytes_of);

}  // namespace xlad::compiler
