// Row form: fusions that compute each row of their arrays from the same row, with sums along it.
//
// Softmax is an example. It has 8192 rows of 1024 columns; `x` and `y` have an element for each row and column (full
// values), `m` and `s` have one for each row (row values):
//
//   m = reduce-max(x)   e = exp(x - m)   s = reduce-add(e)   y = e / s
//
// All of it can be computed row by row while the row is in the cache, so that memory is read and written once. The
// passes decide by this analysis what they fuse, and compiler/kernel/build_kernel.h makes kernels of it.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/analysis/affine.h"

namespace xlad::compiler {

struct RowForm {
  int64_t rows = 0, columns = 0;  // At least 2 each.
  // The sizes of loops that together visit all rows and columns; the first `row_loops` are those over rows. There are
  // two loops unless reshapes divide rows or columns.
  Dims loops;
  size_t row_loops = 0;
  Affine full, row;  // The positions of full values and of row values at their own iteration.
  // For each value of the fusion, the positions at which its elements are needed.
  absl::flat_hash_map<const Instruction*, std::vector<Affine>> positions;

  bool IsFull(const Instruction& value) const { return value.shape().elements() == rows * columns; }
  // Whether each iteration needs the element of its own row and column, or row, and no other.
  bool IsOwn(const Instruction& value) const;
};

// The row form of a fusion or of a single instruction for these numbers of rows and columns. Nullopt if it has none:
// operands must be arrays, results different full values or row values, every reduction must be along the columns, and
// everything else an elementwise opcode, an iota, a scalar constant or one of those that OperandPosition supports.
std::optional<RowForm> RowFormOf(const Instruction& fusion, int64_t rows, int64_t columns);

// The same for the numbers of rows and columns of the reductions in the fusion; nullopt if it has none.
std::optional<RowForm> RowFormOf(const Instruction& fusion);

// Whether the value is an input of the fusion: a parameter of it, or an operand of a single instruction.
bool IsInput(const Instruction& fusion, const Instruction& value);

// The results of a fusion, or the instruction itself.
std::vector<const Instruction*> ResultsOf(const Instruction& fusion);

// The number of reductions that must have been computed before each value: 0 for inputs, 1 for the exponentials in the
// example above, 2 for its result. Row by row, one loop over the columns computes all full values of one level.
absl::flat_hash_map<const Instruction*, int> LevelsOf(const Instruction& fusion, const RowForm& form);

// (result leaf, operand leaf) pairs that may share memory if the kernel computes the levels of a row one after another:
// the operand is needed at its own position only, and not after the level of the result.
std::vector<std::pair<int, int>> RowPairs(const Instruction& fusion, const RowForm& form);

}  // namespace xlad::compiler
