// Code for scheduled kernels (compiler/kernel/kernel_schedule.h).
#pragma once

#include "compiler/codegen/llvm/kernel.h"
#include "compiler/kernel/kernel_schedule.h"

namespace xlad::compiler {

// Emits the loop nest of a scheduled kernel. `inputs[i]` is the array of input i; the outputs are `context.outputs()`.
void EmitNest(KernelContext& context, const ScheduledKernel& kernel, const std::vector<ArrayView>& inputs);

}  // namespace xlad::compiler
