// Elementary functions on f32 and f64 values.
//
// Many f32 functions are emitted as IR, so LLVM can vectorize the loops around them. logistic, sqrt and rsqrt are IR
// for f64 too. All other functions are calls to the C math library. Fast-math is not used: infinities, NaNs, signed
// zeros and denormal numbers are treated as IEEE 754 requires. tests/compiled/math_test.cc has the error bound of each
// f32 function and checks it over dense sweeps.
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
