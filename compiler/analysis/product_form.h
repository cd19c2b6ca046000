// Dots and convolutions as products of matrices.
//
// For each group, rows (m) of the left operand are multiplied with columns (n) of the right operand, and the products
// are summed along the depth (k):
//
//   result[g, m, n] = sum over k of lhs[g, m, k] * rhs[g, n, k]
//
// For a dot, a group is an index of the batch dimensions, a row or column is an index of the free dimensions, and a
// depth is an index of the contracted dimensions. For a convolution, a group is a feature or batch group, a row is an
// index of the output's batch and spatial dimensions, a column is an output feature of the group, and a depth is an
// index of the window's dimensions and the input features of the group. An index of several dimensions is the
// row-major position among their elements.
#pragma once

#include "hlo/module.h"

namespace xlad::compiler {

// The type in which products of a dot or convolution with elements of this type are added: f32 for small floats,
// otherwise the type itself.
tensor::ElementType SumTypeOf(tensor::ElementType type);

// Whether kernels multiply the factors in pairs of s16: the sums are exact modulo 2^16, or the operands have few bits.
bool MultipliesPairs(const hlo::Instruction& product);

class ProductForm {
 public:
  // For a dot (not a ragged-dot) or a convolution, which must outlive the object.
  explicit ProductForm(const hlo::Instruction& product);

  int64_t groups() const { return groups_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t depth() const { return depth_; }

  // The positions of elements in their arrays.
  static constexpr int64_t kOutside = -1;  // The factor is zero: it is in the padding or in a gap of the left operand.
  int64_t Lhs(int64_t group, int64_t row, int64_t depth) const;
  int64_t Rhs(int64_t group, int64_t column, int64_t depth) const;
  int64_t Result(int64_t group, int64_t row, int64_t column) const;

 private:
  // The dimensions of an array that one of the numbers covers.
  struct Side {
    tensor::Dims sizes, strides;
    int64_t Position(int64_t number) const;
  };
  static Side SideOf(const tensor::Shape& shape, const tensor::Dims& dims);
  void SetDot();
  void SetConvolution();
  int64_t InputOf(int64_t group, int64_t row, int64_t depth) const;

  const hlo::Instruction& product_;
  int64_t groups_ = 1, rows_ = 1, columns_ = 1, depth_ = 1;
  Side lhs_group_, lhs_row_, lhs_depth_, rhs_group_, rhs_column_, rhs_depth_;  // Used if the product is a dot.
  tensor::Dims row_dims_, row_sizes_, depth_sizes_;                            // Used if it is a convolution.
};

}  // namespace xlad::compiler
