// The IR builder that all of compiler/llvm uses.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace xlad::compiler {

using IrBuilder = llvm::IRBuilder<>;

}  // namespace xlad::compiler
