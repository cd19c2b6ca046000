// Reductions of the test double of NCCL.
#pragma once

#include <vector>

#include "collectives/exec/nccl/nccl_api.h"

namespace xlad::nccl_double {

// The bytes of an element, or 0 if the type does not exist.
size_t BytesOf(collectives::nccl::DataType type);

// Returns the reduction of the contributions of all ranks, from the last rank to the first. xlad reduces in a different
// order. Every partial result has the type of the elements.
std::vector<std::byte> Reduced(const std::vector<std::vector<std::byte>>& contributions,
                               collectives::nccl::DataType type, collectives::nccl::Op op);

}  // namespace xlad::nccl_double
