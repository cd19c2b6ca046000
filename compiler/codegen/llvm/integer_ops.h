// Elementwise opcodes on integers and booleans.
#pragma once

#include "absl/types/span.h"
#include "compiler/codegen/llvm/ir.h"
#include "hlo/opcode.h"
#include "tensor/element_type.h"

namespace xlad::compiler {

// Whether EmitIntegerOp has code for an opcode on a type.
bool HasIntegerOp(hlo::Opcode opcode, tensor::ElementType type);

// Emits an opcode on integers, which wrap around in two's complement. x / 0 has all bits set, x rem 0 is x, min / -1 is
// min, and min rem -1 is 0, where min is the smallest signed number. Shifts by the width or more return 0, except that
// arithmetic right shifts return the sign in all bits. On pred, add and maximum are `or`, and multiply and minimum are
// `and`.
llvm::Value* EmitIntegerOp(Ir& ir, hlo::Opcode opcode, tensor::ElementType type,
                           absl::Span<llvm::Value* const> operands);

}  // namespace xlad::compiler
