// Native programs: a step list (kernels, library ops, copies, loops and branches) as one LLVM function.
#pragma once

#include <map>
#include <string>

#include "compiler/codegen/llvm/kernel.h"
#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {

using EmittedFunctions = std::map<std::string, EmittedFunction>;

// `known` has the functions that kernel steps may name. InvalidArgument if a step is a collective, names a function
// that is not in `known`, has another number of buffers than its function, uses an allocation that does not exist, or
// copies between slices of different sizes.
absl::StatusOr<EmittedFunction> EmitProgramFunction(llvm::Module* module, const NativeProgramRequest& request,
                                                    const EmittedFunctions& known);

}  // namespace xlad::compiler
