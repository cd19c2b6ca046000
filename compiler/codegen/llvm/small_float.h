// Conversions between f32 and 8-bit or 4-bit floats, in emitted code and of constants.
#pragma once

#include <cstdint>

#include "compiler/codegen/llvm/llvm_builder.h"
#include "tensor/element_type.h"

namespace xlad::compiler {

// The value of the low bits as a float, for any floating-point type of at most 32 bits. NaNs of IEEE formats keep their
// sign and payload.
float SmallFloatToFloat(tensor::ElementType type, uint32_t bits);

// The payload of a NaN after a conversion.
enum class Nans {
  kQuiet,  // The payload of the type's quiet NaN.
  kKeep,   // The payload is unchanged, so the NaN may be signaling: for values that are only moved.
};

// Converts f32 to the iN of an 8- or 4-bit type, rounded to nearest even. Overflow becomes infinity if the type has
// infinities. Otherwise it becomes NaN if the type has NaNs, and the largest value if not. For f8e8m0fnu, ties round
// up, and numbers that are not positive become NaN.
llvm::Value* EncodeSmallFloat(IrBuilder& b, tensor::ElementType type, llvm::Value* value, Nans nans);
// Converts the iN of an 8- or 4-bit type to f32.
llvm::Value* DecodeSmallFloat(IrBuilder& b, tensor::ElementType type, llvm::Value* bits);

}  // namespace xlad::compiler
