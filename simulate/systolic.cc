#include "simulate/systolic.h"

#include <algorithm>
#include <cmath>

#include "compiler/analysis/library_op.h"

namespace xlad::simulate {
namespace {

using hlo::Instruction;
using tensor::ElementType;

double PassesOf(const Instruction& instruction) {
  const ElementType type = instruction.operand(0)->shape().type();
  int bits = tensor::BitWidth(type);
  const double parts = tensor::IsComplex(type) ? 4 : 1;
  if (tensor::IsComplex(type)) bits /= 2;
  if (bits <= 16) return parts;
  if (bits > 32) return 6 * parts;
  return compiler::Bf16Passes(compiler::PrecisionOf(instruction)) * parts;
}

double SizeOf(const hlo::Shape& shape, const hlo::Dims& dimensions) {
  double size = 1;
  for (const int64_t d : dimensions) size *= static_cast<double>(shape.dim(d));
  return size;
}

double ArrayElements(const hlo::Shape& shape) { return static_cast<double>(shape.elements()); }

double RoundUp(double value, double multiple) { return std::ceil(value / multiple) * multiple; }

// The cycles of one pass of a product whose stationary operand is [k,n]. Its m rows may be split over several arrays.
double Cycles(const MatrixProduct& product, double m, double n, double size, double arrays) {
  const double tiles = product.batch * std::ceil(product.k / size) * std::ceil(n / size);
  double best = 0;
  for (double parts = 1; parts <= arrays; parts *= 2) {
    const double rows = std::max(RoundUp(std::ceil(m / parts), 8), size);
    const double cycles = std::ceil(tiles * parts / arrays) * rows;
    if (best == 0 || cycles < best) best = cycles;
  }
  return best;
}

double RateOf(ElementType type, const machine::Chip& chip) {
  const bool is_fp8 = tensor::IsFloating(type) && tensor::BitWidth(type) <= 8;
  const bool is_int8 = (tensor::IsInteger(type) || type == ElementType::kPred) && tensor::BitWidth(type) <= 8;
  if (is_fp8 && chip.fp8_flops > 0) return chip.fp8_flops;
  if (is_int8 && chip.int8_flops > 0) return chip.int8_flops;
  return chip.bf16_flops;
}

}  // namespace

MatrixProduct ProductOf(const Instruction& instruction) {
  MatrixProduct product;
  const hlo::Shape &lhs = instruction.operand(0)->shape(), &rhs = instruction.operand(1)->shape();
  product.type = lhs.type();
  product.passes = PassesOf(instruction);
  if (instruction.opcode() == hlo::Opcode::kConvolution) {
    const auto& attributes = instruction.attributes();
    const double groups = static_cast<double>(attributes.feature_group_count * attributes.batch_group_count);
    const double features = static_cast<double>(rhs.dim(attributes.convolution->kernel_output_feature));
    product.batch = groups;
    product.n = features / groups;
    product.k = ArrayElements(rhs) / std::max(features, 1.0);
    product.m = ArrayElements(instruction.shape()) / std::max(features, 1.0);
    return product;
  }
  const hlo::DotDimensions& dims = *instruction.attributes().dot;
  product.batch = SizeOf(lhs, dims.lhs_batch);
  product.k = SizeOf(lhs, dims.lhs_contracting);
  const double shared = std::max(product.batch * product.k, 1.0);
  product.m = ArrayElements(lhs) / shared;
  product.n = ArrayElements(instruction.shape()) / std::max(product.batch * product.m, 1.0);
  return product;
}

double MxuUs(const MatrixProduct& product, const machine::Chip& chip) {
  if (product.batch * product.m * product.n * product.k == 0) return 0;
  const double size = chip.mxu_size, arrays = chip.mxus();
  const double cycles_per_s = RateOf(product.type, chip) / (2 * size * size * arrays);
  const double cycles = std::min(Cycles(product, product.m, product.n, size, arrays),
                                 Cycles(product, product.n, product.m, size, arrays));
  // The first result leaves the array after the first row has crossed it in both dimensions: 2 * size cycles.
  return (product.passes * cycles + 2 * size) / cycles_per_s * 1e6;
}

OperandBytes ReadBytes(const MatrixProduct& product, const OperandBytes& sizes, const machine::Chip& chip) {
  const double half = chip.vmem() / 2;
  if (std::min(sizes.lhs, sizes.rhs) / std::max(product.batch, 1.0) <= half) return sizes;
  const double block = std::max(std::sqrt(half / 4), 1.0);
  return {sizes.lhs * std::ceil(product.n / block), sizes.rhs * std::ceil(product.m / block)};
}

}  // namespace xlad::simulate
