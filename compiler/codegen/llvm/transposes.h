// The dimensions of a transpose. Adjacent dimensions that stay adjacent are merged.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/indices.h"

namespace xlad::compiler {

// A dimension and its strides in the operand and in the result, in elements.
struct Run {
  int64_t size, from, to;
};

// The merged dimensions in the order of the result. `permutation` is the attribute `dimensions`. Dimensions of size 1
// are omitted.
std::vector<Run> RunsOf(const tensor::Dims& operand, const std::vector<int64_t>& permutation);

}  // namespace xlad::compiler
