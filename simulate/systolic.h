// Matrix products on systolic arrays: the time of dots and convolutions on the matrix units of a chip.
//
// An array of size s holds a tile of s x s weights and takes one row of the other operand per cycle. This dataflow is
// called weight-stationary, and was published for TPU v1 to v4 (Jouppi et al., ISCA 2017 and CACM 2020). A product
// [m,k] x [k,n] has ceil(k/s) * ceil(n/s) tiles; each takes one cycle per row (rounded up to a multiple of 8), and at
// least the s cycles in which the next tile is loaded. Tiles, and parts of their rows, are distributed over the arrays
// of all cores. Either operand may be the stationary one. The clock rate is chosen so that the arrays reach the peak
// rate of the chip file.
#pragma once

#include "base/status.h"
#include "hlo/module.h"
#include "machine/chip.h"

namespace xlad::simulate {

// `batch` products [m,k] x [k,n]. Each takes `passes` through the arrays.
struct MatrixProduct {
  double batch = 1, m = 1, n = 1, k = 1;
  double passes = 1;
  tensor::ElementType type = tensor::ElementType::kBF16;
};

// The product of a dot, ragged-dot or convolution. A convolution contracts window positions and input features
// (implicit im2col); groups are batches. Types of at most 16 bits take 1 pass. Types of 32 bits take 1, 3 or 6 passes
// of bf16 for operand_precision default, high and highest. Types of 64 bits count as f32 at highest precision. Complex
// types take 4 times the passes of their parts.
MatrixProduct ProductOf(const hlo::Instruction& instruction);
inline bool IsProduct(const hlo::Instruction& instruction) {
  return instruction.opcode() == hlo::Opcode::kDot || instruction.opcode() == hlo::Opcode::kConvolution ||
         instruction.opcode() == hlo::Opcode::kRaggedDot;
}

// The time of the product on all arrays of the chip, in microseconds.
double MxuUs(const MatrixProduct& product, const machine::Chip& chip);

struct OperandBytes {
  double lhs = 0, rhs = 0;
};
// The bytes that the product reads from HBM for each operand. `sizes` are the bytes of the operands. If one of them (in
// a batch, its part for one product) fits into half of VMEM, each operand is read once. Otherwise the product is
// computed in square blocks of f32 that fit into half of VMEM. The lhs is read once for each column of blocks, and the
// rhs once for each row of blocks.
OperandBytes ReadBytes(const MatrixProduct& product, const OperandBytes& sizes, const machine::Chip& chip);

}  // namespace xlad::simulate
