// 8-bit and 4-bit floats: conversion from and to f32, as code and on constants.
#pragma once

#include <cstdint>

#include "compiler/codegen/llvm/llvm_builder.h"
#include "tensor/element_type.h"

namespace xlad::compiler {

// The value of the low bits as a float; any type with IsFloating and at most 32 bits.
float SmallFloatToFloat(tensor::ElementType type, uint32_t bits);

// f32 to the iN of an 8- or 4-bit type, rounded to nearest even. Beyond the largest value: infinity where the type
// has one, else NaN where it has one, else the largest value.
llvm::Value* EncodeSmallFloat(IrBuilder& b, tensor::ElementType type, llvm::Value* value);
// The iN of an 8- or 4-bit type to f32.
llvm::Value* DecodeSmallFloat(IrBuilder& b, tensor::ElementType type, llvm::Value* bits);

}  // namespace xlad::compiler
