// Affine positions: which element of an array an iteration of a loop nest accesses.
//
// A position is a constant plus a factor times the index of each loop. Arrays are row-major, so a position in an array
// of any ndim is a single number. For example, with loops r < 8 and c < 4:
//
//   x = f32[8,4]          element (r, c)            4*r + c
//   b = f32[4]            broadcast along rows      c
//   f32[2,4,4] reshape(x) element (r/4, r%4, c)     4*r + c, the same as in x
//   transpose(x)          element (c, r)            of x: 4*r + c; of the transposed array: 8*c + r
//
// In terms of the polyhedral model, positions are affine expressions: they have no divisions or remainders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

struct Affine {
  int64_t constant = 0;
  std::vector<int64_t> factors;  // One factor for each loop.

  friend bool operator==(const Affine&, const Affine&) = default;
};

// The value of the position for these indices of the loops.
int64_t ValueOf(const Affine& position, const Dims& indices);

// The smallest and the largest value of the position. `loops` are the sizes of the loops, which are positive.
int64_t LowestOf(const Affine& position, const Dims& loops);
int64_t HighestOf(const Affine& position, const Dims& loops);

// The indices of the dimensions of an array of sizes `sizes` at a position in it. Nullopt if no affine indices are
// found, as in an array [2,3] at position r of a loop r < 6. `loops` are the sizes of the loops. Every position must be
// in the array.
std::optional<std::vector<Affine>> IndicesAt(const Affine& position, const Dims& loops, const Dims& sizes);

// The inverse of IndicesAt: the position of the element that has these indices. `loops` is the number of loops.
Affine PositionOf(const std::vector<Affine>& indices, const Dims& sizes, size_t loops);

// The position in operand `k` of `user` that the element at position `at` of `user` depends on. Nullopt if that
// position is not affine, if the operand or the result is not an array, or if `user` is not an elementwise instruction,
// broadcast, reshape, transpose, slice or reverse. In an elementwise `user` or a broadcast, an operand with one element
// has position 0.
std::optional<Affine> OperandPosition(const Instruction& user, int64_t k, const Affine& at, const Dims& loops);

}  // namespace xlad::compiler
