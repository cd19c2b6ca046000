// The dimensions of a transpose, with adjacent ones that stay adjacent merged.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/element_type.h"
#include "tensor/shape.h"

namespace xlad::compiler {

// A dimension and its strides in the operand and in the result, in elements.
struct Run {
  int64_t size, from, to;
};

// The runs in the result's order; `permutation` is the attribute `dimensions`. Dimensions of size 1 are left out.
std::vector<Run> RunsOf(const tensor::Dims& operand, const std::vector<int64_t>& permutation);

}  // namespace xlad::compiler
