// Elementwise opcodes on complex numbers.
#pragma once

#include "absl/types/span.h"
#include "compiler/codegen/llvm/ir.h"
#include "hlo/opcode.h"

namespace xlad::compiler {

// Emits an opcode whose first operand is complex. The result of abs, real and imag has the type of the real part.
bool HasComplexOp(hlo::Opcode opcode);
llvm::Value* EmitComplexOp(Ir& ir, hlo::Opcode opcode, absl::Span<llvm::Value* const> operands);

}  // namespace xlad::compiler
