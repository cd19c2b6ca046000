// Assignments: which mesh axes split which factor of an op. All local shapes and collectives of the op follow from its
// assignment. For dot f32[8,4] x f32[4,6] with the rule ([i, k],[k, j])->([i, j]), the assignment i={"dp"}, k={"tp"}
// needs the operands as [{"dp"}, {"tp"}] and [{"tp"}, {}], and its result [{"dp"}, {}] is unreduced along "tp".
#pragma once

#include <vector>

#include "sharding/model/tensor_sharding.h"
#include "sharding/rules/op_rule.h"

namespace xlad::sharding {

struct FactorAxes {
  AxisList axes;
  std::vector<OriginPtr> origins;  // Parallel to axes.
};
using Assignment = std::vector<FactorAxes>;  // An entry for each factor.

// A tensor of an op: an operand with its sharding, or a result with the sharding that it must get.
struct OpTensor {
  const TensorFactors* factors = nullptr;
  const TensorSharding* sharding = nullptr;
  int64_t bytes = 0;  // The size of the global array.
};

// The sharding that a tensor has under an assignment.
TensorSharding Project(const Assignment& assignment, const TensorFactors& factors);

// Whether a factor is split along a part of `axis`.
bool SplitsFactors(const Assignment& assignment, const AxisRef& axis);

// The axes that split reduction factors, in mesh order. Along these axes a result is partial.
AxisList ReducedAxes(const OpRule& rule, const Assignment& assignment);

// Candidate assignments without duplicates. In the first ones, the factors take the axes of all tensors, and each
// tensor has precedence once. In the next ones, they take the axes of one tensor only. One candidate splits nothing;
// it is the last one unless a tensor is replicated.
// Factors with allowed[f] == false stay unsplit; some candidates move their axes to other factors. Every candidate is
// legal: no axis is used twice. If several factors of a size above 1 share a dimension, their splits are even, and a
// minor factor is split only if all major factors are split completely. If `thorough`, there are additional candidates,
// in which a factor skips the axes of a tensor that are already in use, and takes the later ones.
std::vector<Assignment> Candidates(const OpRule& rule, const std::vector<OpTensor>& tensors,
                                   const std::vector<bool>& allowed, bool thorough);

}  // namespace xlad::sharding
