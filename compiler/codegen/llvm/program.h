// Native programs: a step list (kernels, library ops, copies, loops and branches) as one LLVM function.
#pragma once

#include <map>
#include <string>

#include "compiler/codegen/llvm/kernel.h"
#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {

using EmittedFunctions = std::map<std::string, EmittedFunction>;

// Kernel steps may name the functions in `known`. InvalidArgument if a step names another one or has the wrong buffers.
absl::StatusOr<EmittedFunction> EmitProgramFunction(llvm::Module* module, const NativeProgramRequest& request,
                                                    const EmittedFunctions& known);

}  // namespace xlad::compiler
