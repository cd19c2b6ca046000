// Kernels of products of matrices, and their schedules.
//
// The kernel of a dot or convolution is one statement over its groups g, rows m and columns n, along its depth k
// (compiler/analysis/product_form.h). Code computes it in blocks of packed operands
// (compiler/codegen/llvm/blocked_product.h). For example, these primitives are the blocks of f64[256,256,256]:
//
//   split m 128                        blocks of 128 rows, 64 columns and a depth of 64
//   split n 64
//   split k 64
//   order g m.o n.o k.o n.i m.i k.i    the loops over blocks; inside, those over panels, from the outside in
//   bind g m.o n.o 2                   tiles of 2 blocks, which several threads compute at once
//   stage x0 k.o                       pack the block of the left operand, which has 128 x 64 elements
//   stage x1 k.o                       pack the block of the right operand
//   vectorize n.i                      the lanes of a vector are columns
//   atom 8 16                          hold the sums of 8 rows and 16 columns in registers
//
// Without `atom`, the code generator chooses the registers by the target. The operand whose lines are not lanes need
// not be packed. Every sum is in the order of the depth, so a schedule never changes bits.
#pragma once

#include "compiler/kernel/kernel_schedule.h"

namespace xlad::compiler {

// The kernel of a dot or convolution that CPU kernels compute in blocks, or nullopt for other instructions.
std::optional<Kernel> BuildProductKernel(const Instruction& product);

bool IsProductKernel(const Kernel& kernel);
// The dot or convolution of a product kernel.
const Instruction& ProductOf(const Kernel& kernel);

// What the compiler's own blocks depend on.
struct ProductSizes {
  int64_t groups = 1, rows = 1, columns = 1, depth = 1;
  ElementType type = ElementType::kF32;  // The type of the result.
  bool pairs = false;                    // MultipliesPairs.
  bool has_any_rows = false;             // Whether the rows of a block may be any rows, as in a ragged-dot.
  // Whether an operand need not be packed: the elements of a line are neighbors in memory and have the sums' type.
  bool lhs_in_place = false, rhs_in_place = false;
};
// The compiler's own blocks. Atoms are 0: the code generator chooses them.
ProductBlocks DefaultBlocks(const ProductSizes& sizes, int64_t wanted_tiles);

// These are the parts of DefaultSchedule, ApplySchedule and CandidateSchedules for product kernels.
KernelSchedule DefaultProductSchedule(const Kernel& kernel, int64_t wanted_tiles);
absl::StatusOr<ScheduledKernel> ApplyProductSchedule(Kernel kernel, KernelSchedule schedule);
std::vector<KernelSchedule> CandidateProductSchedules(const ScheduledKernel& usual);

// The verification of a product kernel (VerifyKernel).
absl::Status VerifyProduct(const Kernel& kernel);

}  // namespace xlad::compiler
