// Sharding rules: how an op relates the dimensions of its operands and results, expressed by factors (Shardy's op
// sharding rules).
//
// A factor is an index that dimensions of operands and results share. In
//
//   y = f32[8,16] dot(f32[8,4] x, f32[4,16] w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
//
// y[i,j] is the sum over k of x[i,k] w[k,j], so the factors are i, j and k, and the rule prints as
//
//   ([i, k], [k, j])->([i, j]) {i=8, j=16, k=4} reduction={k}
//
// If x is split along i, then y can be split along i without communication; if x is split along k, every device has a
// partial sum of y. A dimension can consist of several factors: a reshape of f32[8,4] to f32[32] has the rule
// ([i, j])->([ij]) {i=8, j=4}.
//
// Propagation and partitioning use factors instead of opcodes. To add a rule see CONTRIBUTING.md. Source: Shardy's
// documentation, "Propagation" (https://openxla.org/shardy/propagation).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hlo/module.h"
#include "sharding/model/mesh.h"

namespace xlad::sharding {

enum class FactorKind {
  kPassThrough,      // Shards are computed independently.
  kReduction,        // Only operands have it. If it is split, every device has a partial result, which must be reduced.
  kNeedReplication,  // Must not be split while the op runs.
  kPermutation,      // Can be split, but a shard needs data of its neighbors (slice, pad, reverse, windows).
};

struct Factor {
  // The size of the dimension, or of this factor's part of the dimension if it has several factors. If the factor joins
  // dimensions of different sizes (slice, pad, windows), this is the largest of the sizes.
  int64_t size = 1;
  FactorKind kind = FactorKind::kPassThrough;
  bool blocked = false;  // Propagation does not pass this factor from one tensor to another.
  // The opcode that combines the partial results of a kReduction factor. kReduce means that only the instruction's own
  // computation can combine them (argmax). The partial results of a dot are added, and those of a gather are combined
  // by kOr of their bits.
  hlo::Opcode reduction = hlo::Opcode::kAdd;
};

// The factors of one dimension, major to minor. The sizes of several factors multiply to the dimension's size. Every
// dimension has at least one factor, unless the rule has no factors at all.
using DimensionFactors = std::vector<int>;
// The factors of every dimension of one tensor.
using TensorFactors = std::vector<DimensionFactors>;

struct OpRule {
  std::vector<Factor> factors;          // Numbered in the order in which the rule adds them.
  std::vector<TensorFactors> operands;  // One entry per array leaf of the operands, depth first.
  std::vector<TensorFactors> results;   // One entry per array leaf of the result, depth first.
  std::string ToString() const;
};

// The rule of an instruction. It is empty (no factors) if nothing propagates through the op, and for control flow and
// tuples, which propagation treats as data flow.
OpRule RuleOf(const hlo::Instruction& instruction);

// The name of factor number `factor` in messages: "i", "j", ..., "z", "z_1", ...
std::string FactorName(int factor);

// Whether a rule, or the reason why there is no rule, is listed for the opcode. For the completeness test.
bool HasRule(hlo::Opcode opcode);

}  // namespace xlad::sharding
