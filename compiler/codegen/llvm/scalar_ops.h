// Elementwise opcodes on single elements.
#pragma once

#include "absl/types/span.h"
#include "compiler/codegen/llvm/ir.h"
#include "hlo/module.h"

namespace xlad::compiler {

// Whether the opcode is elementwise and supported for some element type.
bool HasScalarOp(hlo::Opcode opcode);
// Whether the instruction is elementwise and its element types are supported.
bool HasScalarOp(const hlo::Instruction& instruction);

// Emits the result element from elements of the operands, all in register form (types.h).
llvm::Value* EmitScalarOp(Ir& ir, const hlo::Instruction& instruction, absl::Span<llvm::Value* const> operands);

}  // namespace xlad::compiler
