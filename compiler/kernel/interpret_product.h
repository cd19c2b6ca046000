// The sums of a product of matrices, for the interpreter of kernels (compiler/kernel/interpret.h).
#pragma once

#include <memory>

#include "base/status.h"
#include "compiler/analysis/product_form.h"
#include "tensor/array.h"

namespace xlad::compiler {

class ProductSums {
 public:
  // The sums are zeros. `product` is a dot or convolution, which must outlive the object. The arrays have its operands'
  // types and numbers of elements.
  static absl::StatusOr<std::unique_ptr<ProductSums>> Make(const hlo::Instruction& product, const tensor::Array& lhs,
                                                           const tensor::Array& rhs);
  explicit ProductSums(const hlo::Instruction& product) : product_(product), form_(product) {}
  virtual ~ProductSums() = default;

  const ProductForm& form() const { return form_; }
  // Adds one product to a sum: in floating point by fused multiply-adds, in the order in which code computes the parts
  // of complex numbers.
  virtual void Add(int64_t group, int64_t row, int64_t column, int64_t depth) = 0;
  // The sums, rounded to the type of the result.
  virtual absl::StatusOr<tensor::Array> Result() const = 0;

 protected:
  const hlo::Instruction& product_;

 private:
  const ProductForm form_;
};

}  // namespace xlad::compiler
