// Conversion of 8-bit and 4-bit floats from and to f32: as emitted code, and of constants.
#pragma once

#include <cstdint>

#include "compiler/codegen/llvm/llvm_builder.h"
#include "tensor/element_type.h"

namespace xlad::compiler {

// The value of the low bits as a float, for any floating-point type of at most 32 bits.
float SmallFloatToFloat(tensor::ElementType type, uint32_t bits);

// Converts f32 to the iN of an 8- or 4-bit type, rounded to nearest even. Overflow becomes infinity if the type has
// one, else NaN if it has one, else the largest value.
llvm::Value* EncodeSmallFloat(IrBuilder& b, tensor::ElementType type, llvm::Value* value);
// Converts the iN of an 8- or 4-bit type to f32.
llvm::Value* DecodeSmallFloat(IrBuilder& b, tensor::ElementType type, llvm::Value* bits);

}  // namespace xlad::compiler
