// Which axes split which factor of an op: the one decision from which all local shapes and collectives of the op
// follow.
#pragma once

#include <functional>
#include <vector>

#include "sharding/model/tensor_sharding.h"
#include "sharding/rules/op_rule.h"

namespace xlad::sharding {

struct FactorAxes {
  AxisList axes;
  std::vector<OriginPtr> origins;  // Parallel to axes.
};
using Assignment = std::vector<FactorAxes>;  // An entry for each factor.

// One tensor of an op as the chooser sees it.
struct OpTensor {
  const TensorFactors* factors = nullptr;
  const TensorSharding* sharding = nullptr;  // As it lies (operand) or is wanted (result).
  Dims dims;
  int64_t bytes = 0;
};

// The sharding that an assignment asks of a tensor.
TensorSharding Project(const Assignment& assignment, const TensorFactors& factors);

// The axes of the assignment's split reduction factors, with the reduction: along these a result is partial.
AxisList ReducedAxes(const OpRule& rule, const Assignment& assignment);

// Candidates, without duplicates: from the tensors' own shardings, each tensor first once, factors with
// allowed[f] == false left whole. Every candidate is legal: no axis twice, and where several factors share a dimension
// the split is even and major factors are split wholly before minor ones. `thorough`: also those in which a tensor
// gives its later axes to a factor although an earlier one is used elsewhere.
std::vector<Assignment> Candidates(const OpRule& rule, const std::vector<OpTensor>& tensors,
                                   const std::vector<bool>& allowed, bool thorough);

}  // namespace xlad::sharding
