// The type of IR builder that this folder uses.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace xlad::compiler {

using IrBuilder = llvm::IRBuilder<>;

}  // namespace xlad::compiler
