// Code for scheduled kernels (compiler/kernel/kernel_schedule.h).
#pragma once

#include "compiler/codegen/llvm/kernel.h"
#include "compiler/kernel/kernel_schedule.h"

namespace xlad::compiler {

// Emits the loops of a scheduled kernel. `inputs` are the memory of its inputs; its outputs are those of `context`.
void EmitNest(KernelContext& context, const ScheduledKernel& kernel, const std::vector<ArrayView>& inputs);

}  // namespace xlad::compiler
