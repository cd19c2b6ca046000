// Chooses the code generator of a target.
#include "compiler/kernel/object_emitter.h"

#include "compiler/codegen/llvm/cpu_emitter.h"
#include "compiler/codegen/nvptx/gpu_emitter.h"
#include "compiler/kernel/gpu_target.h"

namespace xlad::compiler {

absl::StatusOr<std::unique_ptr<ObjectEmitter>> ObjectEmitter::Create(const Target& target) {
  if (IsGpu(target)) return MakeGpuEmitter(target);
  XLAD_ASSIGN_OR_RETURN(const CpuEmitters emitters, CpuEmitters::Create(target));
  return emitters.Make();
}

}  // namespace xlad::compiler
