// Code for single elements: conversions between element types, comparisons, and reduced precision.
#pragma once

#include "compiler/codegen/llvm/ir.h"
#include "hlo/attributes.h"
#include "tensor/element_type.h"

namespace xlad::compiler {

// Converts one element. Conversion of a float to an integer truncates toward zero and saturates; NaN becomes 0.
// Conversion to pred gives true unless the number is zero. Conversion of a complex number to any other real type takes
// its real part.
llvm::Value* EmitConvert(Ir& ir, tensor::ElementType from, tensor::ElementType to, llvm::Value* value);

// Converts a float to an integer with stochastic rounding. `random` is an unsigned integer of n bits and stands for
// the number random / 2^n. The float is rounded away from zero if this number is less than the float's fraction, and
// otherwise toward zero.
llvm::Value* EmitStochasticConvert(Ir& ir, tensor::ElementType from, tensor::ElementType to, llvm::Value* value,
                                   llvm::Value* random);

// Compares two elements in the direction of the attributes. Returns an i1. Complex numbers have only EQ and NE.
llvm::Value* EmitCompare(Ir& ir, tensor::ElementType type, const hlo::Attributes& attributes, llvm::Value* x,
                         llvm::Value* y);

// Maps a float to a signed integer. The integers compare as the floats do in IEEE 754's total order: -NaN < -inf < ...
// < -0 < +0 < ... < inf < NaN.
llvm::Value* TotalOrderKey(IrBuilder& b, tensor::ElementType type, llvm::Value* value);

llvm::Value* EmitReducePrecision(Ir& ir, tensor::ElementType type, const hlo::Attributes& attributes,
                                 llvm::Value* value);

}  // namespace xlad::compiler
