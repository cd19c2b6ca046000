// Arithmetic on f64 or c128 numbers, for kernels (linear algebra, FFT, batch norm) that serve real and complex types
// alike.
#pragma once

#include "compiler/codegen/llvm/elements.h"

namespace xlad::compiler {

// The type that elements of a type are computed in: f64 for real ones, c128 for complex ones.
ElementType WideType(ElementType type);

class Wide {
 public:
  Wide(Ir* ir, ElementType narrow) : ir_(*ir), b_(ir->b), narrow_(narrow), type_(WideType(narrow)) {}

  ElementType type() const { return type_; }
  bool is_complex() const { return type_ == ElementType::kC128; }
  llvm::Type* register_type() const { return RegisterType(b_.getContext(), type_); }

  llvm::Value* FromNarrow(llvm::Value* x) const;
  llvm::Value* ToNarrow(llvm::Value* x) const;
  llvm::Value* Number(double value) const;  // With imaginary part 0.
  llvm::Value* Add(llvm::Value* x, llvm::Value* y) const;
  llvm::Value* Subtract(llvm::Value* x, llvm::Value* y) const;
  llvm::Value* Multiply(llvm::Value* x, llvm::Value* y) const;
  llvm::Value* Divide(llvm::Value* x, llvm::Value* y) const;
  llvm::Value* Conjugate(llvm::Value* x) const;
  llvm::Value* RealPartOf(llvm::Value* x) const;   // Returns an f64.
  llvm::Value* FromReal(llvm::Value* real) const;  // Takes an f64.
  llvm::Value* Sqrt(llvm::Value* real) const;      // Takes and returns an f64.

 private:
  Ir& ir_;
  IrBuilder& b_;
  ElementType narrow_;
  ElementType type_;
};

}  // namespace xlad::compiler
