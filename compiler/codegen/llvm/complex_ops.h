// Elementwise opcodes on complex numbers.
#pragma once

#include "absl/types/span.h"
#include "compiler/codegen/llvm/ir.h"
#include "hlo/opcode.h"

namespace xlad::compiler {

// Opcodes whose first operand is complex; abs, real and imag give the real part's type.
bool HasComplexOp(hlo::Opcode opcode);
llvm::Value* EmitComplexOp(Ir& ir, hlo::Opcode opcode, absl::Span<llvm::Value* const> operands);

}  // namespace xlad::compiler
