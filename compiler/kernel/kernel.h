// A kernel specifies the values that a fusion computes, as statements over named dimensions, but not the order of
// computation.
//
// For each index of its dimensions, a statement computes one scalar from elements of arrays at affine positions, by an
// HLO computation on scalars. Row-wise softmax of x = f32[8192,1024] is four statements:
//
//   m[r]    = maximum over c of x[1024*r + c]
//   e[r,c]  = exp(x[1024*r + c] - m[r])
//   s[r]    = sum over c of e[1024*r + c]
//   y[r,c]  = e[1024*r + c] / s[r]
//
// A kernel schedule (kernel_schedule.h) determines the loops, their order, and the memory of temporaries. It never
// changes the bits of results, because the kernel fixes the order of each reduction. A reduction has `lanes` partial
// results. Lane l combines the elements whose index along the last reduced dimension is l modulo `lanes`, in row-major
// order. Then lane i is combined with lane i + lanes/2, and so on by halves. Finally, the initial value is combined
// with the result: combine(initial, total). If there is only one lane, it starts with the initial value instead.
//
// A product of matrices is also a statement, whose code is a dot or convolution of complete arrays. Its sums are in the
// order of the depth. Its kernel has no other statement:
//
//   y[g,m,n] = product of x0 and x1, along k
//
// Such statements are used in the polyhedral model and in Halide's algorithms.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/analysis/affine.h"

namespace xlad::compiler {

struct KernelDim {
  std::string name;
  int64_t size = 1;
};

// Arrays are flat: a position is one number.
struct KernelArray {
  enum class Role { kInput, kOutput, kTemporary };
  std::string name;
  Role role = Role::kInput;
  ElementType type = ElementType::kF32;
  int64_t elements = 0;
};

// Element `at` of an array. If `array` is kPosition, the number `at` itself, as an s64.
struct KernelRead {
  static constexpr int kPosition = -1;
  int array = 0;
  Affine at;  // Has one factor for each dimension of the kernel.
};

// A computation on scalars: the entry of `code` applied to the elements that are read.
struct KernelCode {
  std::shared_ptr<const Module> code;  // The result is a scalar, or a tuple of scalars.
  std::vector<KernelRead> reads;

  const Computation& computation() const { return *code->entry(); }
};

struct Statement {
  std::string name;
  std::vector<int> over;     // The dimensions of the results.
  std::vector<int> along;    // The dimensions that are reduced, in row-major order. Empty unless this is a reduction.
  std::vector<int> results;  // The arrays that the statement writes, one for each value of its code.
  Affine at;                 // The position that is written. It must be different for different indices of `over`.
  KernelCode value;
  // For reductions only: the computation (accumulators, values) -> accumulators, and the initial values.
  std::shared_ptr<const Module> combine;
  KernelCode initial;
  // A power of two. More than one only if `combine` is a sum, product, maximum or minimum of f32 or f64, so that a lane
  // without elements can hold the neutral element.
  int64_t lanes = 1;
  // If true, this is the only statement of its kernel: a product of matrices for each index of a first dimension. The
  // root of its code is a dot or convolution of the complete arrays that it reads (compiler/kernel/product_schedule.h).
  // The other rules above do not apply.
  bool is_product = false;

  bool is_reduction() const { return combine != nullptr; }
  // All dimensions: `over`, then `along`.
  std::vector<int> dims() const;
};

// Statements are in an order in which arrays are written before they are read. Every temporary and output is written by
// exactly one statement. Inputs may be read at any of their positions.
struct Kernel {
  std::string name;
  std::vector<KernelDim> dims;
  std::vector<KernelArray> arrays;
  std::vector<Statement> statements;

  Dims sizes() const;
  // The statement that writes an array, or -1 for inputs.
  int WriterOf(int array) const;
  // The product of the sizes of these dimensions. For Statement.along, the number of elements that are reduced.
  int64_t Extent(const std::vector<int>& dims) const;
};

// InvalidArgument, naming the statement, array or dimension, unless the kernel is as described above.
absl::Status VerifyKernel(const Kernel& kernel);

// The text form, which ParseKernel reads. Equal kernels have equal texts. For example
//
//   kernel softmax
//   dim r 8192
//   dim c 1024
//   input x f32 8388608
//   temporary m f32 8192
//   ...
//   reduce m over r along c lanes 64 writes m at r
//   read x at 1024*r+c
//   code
//   HloModule ...
//   end
//   combine
//   ...
std::string KernelText(const Kernel& kernel);
// InvalidArgument with the line, what was found and what was expected. The kernel is verified.
absl::StatusOr<Kernel> ParseKernel(absl::string_view text);
// A hash of the text. Kernels that differ only in their own names and those of their statements and arrays have the
// same hash.
uint64_t KernelHash(const Kernel& kernel);

}  // namespace xlad::compiler
