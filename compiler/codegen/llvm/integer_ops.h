// Elementwise opcodes on integers and booleans.
#pragma once

#include "absl/types/span.h"
#include "compiler/codegen/llvm/ir.h"
#include "hlo/opcode.h"
#include "tensor/element_type.h"

namespace xlad::compiler {

bool HasIntegerOp(hlo::Opcode opcode, tensor::ElementType type);

// Emits an opcode on integers, which wrap around in two's complement. x / 0 has all bits set, x rem 0 is x, min / -1 is
// min, min rem -1 is 0. Shifts by the width or more return 0, arithmetic right shifts the sign. On pred, add is
// or, and multiply is and.
llvm::Value* EmitIntegerOp(Ir& ir, hlo::Opcode opcode, tensor::ElementType type,
                           absl::Span<llvm::Value* const> operands);

}  // namespace xlad::compiler
