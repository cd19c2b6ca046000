// Elementary functions on f32 and f64 values.
//
// f32: branch-free polynomials in IR, so that loops around them vectorise; f64, and f32 functions without a
// polynomial of their own: calls of the C math library. No fast-math: infinities, NaNs, signed zeros and denormals
// come out as IEEE 754 says. Bounds, measured over dense sweeps by math_test.cc, stand in math.cc beside each
// function.
#pragma once

#include "compiler/codegen/llvm/ir.h"
#include "hlo/opcode.h"

namespace xlad::compiler {

bool HasMathFunction(hlo::Opcode opcode);

// A unary function (exponential, log, tanh, ...) on float or double.
llvm::Value* EmitMath(Ir& ir, hlo::Opcode opcode, llvm::Value* x);
llvm::Value* EmitPower(Ir& ir, llvm::Value* x, llvm::Value* y);
llvm::Value* EmitAtan2(Ir& ir, llvm::Value* y, llvm::Value* x);
llvm::Value* EmitRemainder(Ir& ir, llvm::Value* x, llvm::Value* y);

}  // namespace xlad::compiler
