// Conversions between element types, comparisons and reduced precision, of single elements.
#pragma once

#include "compiler/codegen/llvm/ir.h"
#include "hlo/attributes.h"
#include "tensor/element_type.h"

namespace xlad::compiler {

// Floats to integers truncate towards zero and saturate, NaN gives 0; anything to pred asks "not zero"; complex to
// real drops the imaginary part.
llvm::Value* EmitConvert(Ir& ir, tensor::ElementType from, tensor::ElementType to, llvm::Value* value);

// A float to an integer: toward zero, or one further with the probability that the fraction gives, when `random` (an
// unsigned integer), as a fraction of its range, is below it.
llvm::Value* EmitStochasticConvert(Ir& ir, tensor::ElementType from, tensor::ElementType to, llvm::Value* value,
                                   llvm::Value* random);

// Result i1.
llvm::Value* EmitCompare(Ir& ir, tensor::ElementType type, const hlo::Attributes& attributes, llvm::Value* x,
                         llvm::Value* y);

// A signed integer that orders as IEEE's total order: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
llvm::Value* TotalOrderKey(IrBuilder& b, tensor::ElementType type, llvm::Value* value);

llvm::Value* EmitReducePrecision(Ir& ir, tensor::ElementType type, const hlo::Attributes& attributes,
                                 llvm::Value* value);

}  // namespace xlad::compiler
