// Element types in LLVM IR: the forms of a value in memory and in a register.
//
// In memory an element is its bytes (tensor/element_type.h). In a register
//   - pred is i1, integers are iN (s4 is i4)
//   - f32 and f64 are themselves; every smaller float (tensor::IsSmallFloat) is an f32 that holds a value of the small
//     type exactly: arithmetic is done in f32 and rounded once, to nearest even, by RoundTo
//   - complex numbers are {float, float} or {double, double}
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "compiler/codegen/llvm/llvm_builder.h"
#include "tensor/element_type.h"

namespace xlad::compiler {

using tensor::ElementType;

llvm::Type* StorageType(llvm::LLVMContext& context, ElementType type);
llvm::Type* RegisterType(llvm::LLVMContext& context, ElementType type);

llvm::Value* LoadElement(IrBuilder& b, ElementType type, llvm::Value* address);
void StoreElement(IrBuilder& b, ElementType type, llvm::Value* value, llvm::Value* address);

// Converts a register value to the iN of its storage (N is the width of the type, 8 for pred), and back. The real part
// of a complex number is the low half.
llvm::Value* ToBits(IrBuilder& b, ElementType type, llvm::Value* value);
llvm::Value* FromBits(IrBuilder& b, ElementType type, llvm::Value* bits);

// Rounds an f32 to the nearest value of a small float type, ties to even. Returns values of other types unchanged.
llvm::Value* RoundTo(IrBuilder& b, ElementType type, llvm::Value* value);

// The register constant for an element whose bytes in memory are given.
llvm::Constant* ConstantOf(llvm::LLVMContext& context, ElementType type, absl::Span<const std::byte> bytes);

llvm::Value* MakeComplex(IrBuilder& b, llvm::Value* real, llvm::Value* imag);
inline llvm::Value* Real(IrBuilder& b, llvm::Value* value) { return b.CreateExtractValue(value, 0); }
inline llvm::Value* Imag(IrBuilder& b, llvm::Value* value) { return b.CreateExtractValue(value, 1); }

}  // namespace xlad::compiler
