#include "compiler/analysis/product_form.h"

#include "compiler/analysis/score_space.h"
#include "tensor/small_float.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::Dims;
using tensor::ElementType;

bool FitsIn16Bits(ElementType type) {
  return tensor::IsInteger(type) && tensor::BitWidth(type) <= (tensor::IsSigned(type) ? 16 : 15);
}

}  // namespace

ElementType SumTypeOf(ElementType type) { return tensor::IsSmallFloat(type) ? ElementType::kF32 : type; }

bool MultipliesPairs(const Instruction& product) {
  const ElementType type = product.shape().type();
  if (!tensor::IsInteger(type)) return false;
  if (tensor::BitWidth(type) <= 16) return true;
  return tensor::BitWidth(type) == 32 && FitsIn16Bits(product.operand(0)->shape().type()) &&
         FitsIn16Bits(product.operand(1)->shape().type());
}

ProductForm::ProductForm(const Instruction& product) : product_(product) {
  product.opcode() == Opcode::kConvolution ? SetConvolution() : SetDot();
}

int64_t ProductForm::Side::Position(int64_t number) const {
  int64_t position = 0;
  for (size_t d = sizes.size(); d-- > 0; number /= sizes[d]) position += number % sizes[d] * strides[d];
  return position;
}

ProductForm::Side ProductForm::SideOf(const tensor::Shape& shape, const Dims& dims) {
  return {tensor::Select(shape.dims, dims), tensor::Select(tensor::Strides(shape.dims), dims)};
}

void ProductForm::SetDot() {
  const hlo::DotDimensions& n = *product_.attributes().dot;
  const FreeDimensions free = FreeDimensionsOf(product_);
  const tensor::Shape &lhs = product_.operand(0)->shape().array(), &rhs = product_.operand(1)->shape().array();
  lhs_group_ = SideOf(lhs, n.lhs_batch);
  lhs_row_ = SideOf(lhs, free.lhs);
  lhs_depth_ = SideOf(lhs, n.lhs_contracting);
  rhs_group_ = SideOf(rhs, n.rhs_batch);
  rhs_column_ = SideOf(rhs, free.rhs);
  rhs_depth_ = SideOf(rhs, n.rhs_contracting);
  groups_ = tensor::Product(lhs_group_.sizes);
  rows_ = tensor::Product(lhs_row_.sizes);
  columns_ = tensor::Product(rhs_column_.sizes);
  depth_ = tensor::Product(lhs_depth_.sizes);
}

void ProductForm::SetConvolution() {
  const hlo::Attributes& attributes = product_.attributes();
  const hlo::ConvolutionDimensions& n = *attributes.convolution;
  for (int64_t d = 0; d < product_.shape().ndim(); ++d) {
    if (d != n.output_feature) row_dims_.push_back(d);
  }
  row_sizes_ = tensor::Select(product_.shape().dims(), row_dims_);
  for (const hlo::WindowDimension& d : *attributes.window) depth_sizes_.push_back(d.size);
  depth_sizes_.push_back(product_.operand(1)->shape().dim(n.kernel_input_feature));
  groups_ = attributes.feature_group_count * attributes.batch_group_count;
  rows_ = tensor::Product(row_sizes_);
  columns_ = product_.shape().dim(n.output_feature) / groups_;
  depth_ = tensor::Product(depth_sizes_);
}

int64_t ProductForm::Lhs(int64_t group, int64_t row, int64_t depth) const {
  if (product_.opcode() == Opcode::kConvolution) return InputOf(group, row, depth);
  return lhs_group_.Position(group) + lhs_row_.Position(row) + lhs_depth_.Position(depth);
}

int64_t ProductForm::InputOf(int64_t group, int64_t row, int64_t depth) const {
  const hlo::Attributes& attributes = product_.attributes();
  const hlo::ConvolutionDimensions& n = *attributes.convolution;
  const Dims& sizes = product_.operand(0)->shape().dims();
  const Dims strides = tensor::Strides(sizes), in_depth = tensor::MultiIndexAt(depth_sizes_, depth);
  Dims out(product_.shape().ndim(), 0);
  const Dims in_row = tensor::MultiIndexAt(row_sizes_, row);
  for (size_t d = 0; d < row_dims_.size(); ++d) out[row_dims_[d]] = in_row[d];
  int64_t batch = out[n.output_batch], feature = in_depth.back();
  if (attributes.batch_group_count != 1) {
    batch += group * (sizes[n.input_batch] / attributes.batch_group_count);
  } else {
    feature += group * depth_sizes_.back();
  }
  int64_t position = batch * strides[n.input_batch] + feature * strides[n.input_feature];
  for (size_t d = 0; d < n.input_spatial.size(); ++d) {
    const hlo::WindowDimension& window = (*attributes.window)[d];
    const int64_t at =
        out[n.output_spatial[d]] * window.stride + in_depth[d] * window.window_dilation - window.padding_low;
    const int64_t index = at / window.base_dilation;
    if (at < 0 || at % window.base_dilation != 0 || index >= sizes[n.input_spatial[d]]) return kOutside;
    position += index * strides[n.input_spatial[d]];
  }
  return position;
}

int64_t ProductForm::Rhs(int64_t group, int64_t column, int64_t depth) const {
  if (product_.opcode() != Opcode::kConvolution) {
    return rhs_group_.Position(group) + rhs_column_.Position(column) + rhs_depth_.Position(depth);
  }
  const hlo::Attributes& attributes = product_.attributes();
  const hlo::ConvolutionDimensions& n = *attributes.convolution;
  const Dims strides = tensor::Strides(product_.operand(1)->shape().dims()),
             in_depth = tensor::MultiIndexAt(depth_sizes_, depth);
  int64_t position = (group * columns_ + column) * strides[n.kernel_output_feature] +
                     in_depth.back() * strides[n.kernel_input_feature];
  for (size_t d = 0; d < n.kernel_spatial.size(); ++d) {
    const hlo::WindowDimension& window = (*attributes.window)[d];
    const int64_t tap = window.window_reversal ? window.size - 1 - in_depth[d] : in_depth[d];
    position += tap * strides[n.kernel_spatial[d]];
  }
  return position;
}

int64_t ProductForm::Result(int64_t group, int64_t row, int64_t column) const {
  if (product_.opcode() != Opcode::kConvolution) return (group * rows_ + row) * columns_ + column;
  const Dims strides = tensor::Strides(product_.shape().dims()), in_row = tensor::MultiIndexAt(row_sizes_, row);
  int64_t position = (group * columns_ + column) * strides[product_.attributes().convolution->output_feature];
  for (size_t d = 0; d < row_dims_.size(); ++d) position += in_row[d] * strides[row_dims_[d]];
  return position;
}

}  // namespace xlad::compiler
