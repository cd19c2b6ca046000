// Affine positions: which element of an array an iteration of a loop nest touches.
//
// A position is a constant plus a factor times the index of each loop. Arrays are row-major, so one number is the
// position in an array of any number of dimensions. For example, with loops r < 8 and c < 4:
//
//   x = f32[8,4]          element (r, c)            4*r + c
//   b = f32[4]            broadcast along rows      c
//   f32[2,4,4] of x       element (r/4, r%4, c)     4*r + c, the same as in x
//   transpose(x)          element (c, r)            of x: 4*r + c; of the transposed array: 8*c + r
//
// This is the quasi-affine subset without divisions of the polyhedral model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

struct Affine {
  int64_t constant = 0;
  std::vector<int64_t> factors;  // One for each loop.

  friend bool operator==(const Affine&, const Affine&) = default;
};

// The value for these indices of the loops.
int64_t ValueOf(const Affine& position, const Dims& indices);

// The indices of the dimensions of an array of sizes `sizes` at a position in it. Nullopt if they are not affine, as in
// an array [2,3] at position r of a loop r < 6. `loops` are the sizes of the loops. Every position must be in the
// array.
std::optional<std::vector<Affine>> IndicesAt(const Affine& position, const Dims& loops, const Dims& sizes);

// The inverse: the position of the element with these indices.
Affine PositionOf(const std::vector<Affine>& indices, const Dims& sizes, size_t loops);

// The position in operand `k` of `user` that the element at position `at` of `user` depends on. Nullopt if it is not
// affine or if it depends on more elements. Elementwise opcodes, broadcast, reshape, transpose, slice and reverse have
// such positions. Scalar operands have position 0.
std::optional<Affine> OperandPosition(const Instruction& user, int64_t k, const Affine& at, const Dims& loops);

}  // namespace xlad::compiler
