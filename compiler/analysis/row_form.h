// Row form: fusions that compute each row of their results from the same row of their operands, with reductions along
// the row.
//
// Softmax is an example. It has 8192 rows of 1024 columns; `x` and `y` have an element for each row and column (full
// values), `m` and `s` have one for each row (row values):
//
//   m = reduce-max(x)   e = exp(x - m)   s = reduce-add(e)   y = e / s
//
// All of these values can be computed row by row while the row is in the cache, so that memory is read and written
// once. The passes use this analysis to decide what to fuse, and compiler/kernel/build_kernel.h makes a kernel from the
// row form.
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
  Affine full, row;  // The position of an iteration's own element in full values and in row values.
  // For each value of the fusion, the positions at which its elements are needed.
  absl::flat_hash_map<const Instruction*, std::vector<Affine>> positions;

  bool IsFull(const Instruction& value) const { return value.shape().elements() == rows * columns; }
  // Whether each iteration needs only one element of the value: that of its own row and column, or that of its own row
  // if it is a row value.
  bool IsOwn(const Instruction& value) const;
};

// The row form of a fusion or of a single instruction for these numbers of rows and columns. Nullopt unless all of
// these conditions hold: `rows` and `columns` are at least 2; operands are arrays; results are full values or row
// values, and no result occurs twice; every reduction is along the columns; every other instruction is elementwise, an
// iota, a scalar constant, or supported by OperandPosition; and no value is needed at more than four positions.
std::optional<RowForm> RowFormOf(const Instruction& fusion, int64_t rows, int64_t columns);

// The row form for the numbers of rows and columns of the fusion's last reduction of a single array. Nullopt if there
// is no such reduction or no such row form.
std::optional<RowForm> RowFormOf(const Instruction& fusion);

// Whether the value is an input of the fusion: a parameter of it, or an operand of a single instruction.
bool IsInput(const Instruction& fusion, const Instruction& value);

// The results of a fusion, or the instruction itself.
std::vector<const Instruction*> ResultsOf(const Instruction& fusion);

// The level of each value: the largest number of reductions on a chain of operands that ends at the value, including
// the value itself. It is 0 for inputs; in the example above, 1 for `m` and the exponentials, 2 for `s` and the result.
// In each row, one loop over the columns computes all full values of one level.
absl::flat_hash_map<const Instruction*, int> LevelsOf(const Instruction& fusion, const RowForm& form);

// The (result leaf, operand leaf) pairs of full values that may share memory if the kernel computes the levels of a row
// one after another. Both have the same size in bytes. The operand is needed at its own position only, and is not
// needed after the level of the result.
std::vector<std::pair<int, int>> RowPairs(const Instruction& fusion, const RowForm& form);

}  // namespace xlad::compiler
