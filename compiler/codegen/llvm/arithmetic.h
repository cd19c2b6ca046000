// Arithmetic on f64 or c128 numbers, for kernels (linear algebra, batch norm) that support both real and complex types.
#pragma once

#include "compiler/codegen/llvm/elements.h"

namespace xlad::compiler {

class Wide {
 public:
  Wide(Ir* ir, ElementType narrow) : ir_(*ir), b_(ir->b), narrow_(narrow), type_(tensor::DoublePrecisionOf(narrow)) {}

  ElementType type() const { return type_; }
  bool is_complex() const { return type_ == ElementType::kC128; }
  llvm::Type* register_type() const { return RegisterType(b_.getContext(), type_); }

  llvm::Value* FromNarrow(llvm::Value* x) const;
  llvm::Value* ToNarrow(llvm::Value* x) const;
  llvm::Value* Number(double value) const;  // The imaginary part is 0.
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
