// Elementwise opcodes on complex numbers.
#pragma once

#include "absl/types/span.h"
#include "compiler/codegen/llvm/ir.h"
#include "hlo/opcode.h"

namespace xlad::compiler {

// Whether EmitComplexOp has code for an opcode. EmitComplexOp emits an opcode whose first operand is complex. Abs, real
// and imag return the type of the real part.
bool HasComplexOp(hlo::Opcode opcode);
llvm::Value* EmitComplexOp(Ir& ir, hlo::Opcode opcode, absl::Span<llvm::Value* const> operands);

}  // namespace xlad::compiler
