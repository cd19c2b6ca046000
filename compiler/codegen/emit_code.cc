#include "compiler/codegen/emit_code.h"

#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "compiler/codegen/cpu_code.h"
#include "compiler/codegen/in_threads.h"
#include "compiler/kernel/gpu_target.h"

namespace xlad::compiler {
namespace {

// The kernels begin .. end-1 of a program in one object.
struct GpuObject {
  size_t begin = 0, end = 0;
  std::unique_ptr<ObjectEmitter> emitter;
  absl::flat_hash_map<std::string, EmittedKernel> facts;
  std::string ir, object;
};

absl::Status Compile(const Target& target, const StepProgram& program, bool want_listings, GpuObject* object) {
  XLAD_ASSIGN_OR_RETURN(object->emitter, ObjectEmitter::Create(target));
  for (size_t k = object->begin; k < object->end; ++k) {
    const KernelRequest& kernel = program.kernels[k];
    XLAD_ASSIGN_OR_RETURN(object->facts[kernel.symbol], object->emitter->EmitKernel(kernel));
  }
  if (want_listings) object->ir = object->emitter->IrText();
  XLAD_ASSIGN_OR_RETURN(object->object, object->emitter->Finish());
  return absl::OkStatus();
}

// PTX is one object. Code of simulated GPUs has an object for each kernel.
absl::StatusOr<EmittedCode> EmitGpuCode(const Target& target, const StepProgram& program, bool want_listings) {
  const size_t count = program.kernels.size();
  std::vector<GpuObject> objects(IsSimulatedGpu(target) && count > 0 ? count : 1);
  for (size_t i = 0; i < objects.size(); ++i) {
    objects[i].begin = objects.size() == 1 ? 0 : i;
    objects[i].end = objects.size() == 1 ? count : i + 1;
  }
  XLAD_RETURN_IF_ERROR(ForEachInThreads(
      objects.size(), [&](size_t i) { return Compile(target, program, want_listings, &objects[i]); }));
  EmittedCode code;
  code.target = objects[0].emitter->target();
  code.steps = program.steps;
  code.compiled = std::ssize(objects);
  std::vector<std::string> bundled;
  for (GpuObject& object : objects) {
    SetKernelFacts(&code.steps, object.facts);
    bundled.push_back(std::move(object.object));
    if (!want_listings) continue;
    XLAD_ASSIGN_OR_RETURN(const std::string assembly, object.emitter->AssemblyText());
    code.ir += object.ir;
    code.assembly += assembly;
  }
  XLAD_ASSIGN_OR_RETURN(code.object, BundleObjects(std::move(bundled)));
  return code;
}

}  // namespace

absl::StatusOr<EmittedCode> EmitCode(const Target& target, const StepProgram& program, const EmitOptions& options) {
  return IsGpu(target) ? EmitGpuCode(target, program, options.want_listings) : EmitCpuCode(target, program, options);
}

}  // namespace xlad::compiler
