// Elementwise opcodes on single elements.
#pragma once

#include "absl/types/span.h"
#include "compiler/codegen/llvm/ir.h"
#include "hlo/module.h"

namespace xlad::compiler {

// Whether the opcode is an elementwise one that some element type has.
bool HasScalarOp(hlo::Opcode opcode);
// Whether the instruction is an elementwise one whose element types are supported.
bool HasScalarOp(const hlo::Instruction& instruction);

// The result element from the operands' elements, all in register form (types.h).
llvm::Value* EmitScalarOp(Ir& ir, const hlo::Instruction& instruction, absl::Span<llvm::Value* const> operands);

}  // namespace xlad::compiler
