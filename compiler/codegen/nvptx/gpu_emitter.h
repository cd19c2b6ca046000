// The ObjectEmitter of GPU targets (compiler/kernel/gpu_target.h).
#pragma once

#include <memory>

#include "compiler/codegen/nvptx/host_threads.h"
#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {

// Collects kernels in one LLVM module for NVPTX. For a target of triple nvptx64-nvidia-cuda and CPU sm_80 or later
// (sm_90 if the CPU is empty), the object code is PTX, which ptxas or a GPU's driver compiles. For a target of device
// kind gpu_sim or gpu_sim_checked, the same module is turned into a module for the target's CPU (host_threads.h), and
// the object code is ELF. InvalidArgument for other targets. `options` apply only to simulated GPUs; gpu_sim_checked
// also sets HostOptions.check. EmitProgram is Unimplemented: a GPU does not run native programs.
absl::StatusOr<std::unique_ptr<ObjectEmitter>> MakeGpuEmitter(const Target& target,
                                                              const HostOptions& options = {});

}  // namespace xlad::compiler
