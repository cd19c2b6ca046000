// Conversions between element types, comparisons and reduced precision, of single elements.
#pragma once

#include "compiler/codegen/llvm/ir.h"
#include "hlo/attributes.h"
#include "tensor/element_type.h"

namespace xlad::compiler {

// Converts one element. Floats become integers by truncation toward zero and saturation, NaN becomes 0. A pred is
// "not equal to zero". Complex numbers become real ones by their real part.
llvm::Value* EmitConvert(Ir& ir, tensor::ElementType from, tensor::ElementType to, llvm::Value* value);

// Converts a float to an integer with stochastic rounding: away from zero if `random`, an unsigned integer read as a
// fraction of its range, is less than the float's fraction, else toward zero.
llvm::Value* EmitStochasticConvert(Ir& ir, tensor::ElementType from, tensor::ElementType to, llvm::Value* value,
                                   llvm::Value* random);

// Returns an i1.
llvm::Value* EmitCompare(Ir& ir, tensor::ElementType type, const hlo::Attributes& attributes, llvm::Value* x,
                         llvm::Value* y);

// Maps a float to a signed integer, so that integers compare as floats do in IEEE 754's total order: -NaN < -inf < ...
// < -0 < +0 < ... < inf < NaN.
llvm::Value* TotalOrderKey(IrBuilder& b, tensor::ElementType type, llvm::Value* value);

llvm::Value* EmitReducePrecision(Ir& ir, tensor::ElementType type, const hlo::Attributes& attributes,
                                 llvm::Value* value);

}  // namespace xlad::compiler
