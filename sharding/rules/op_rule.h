// What an opcode means for sharding, as factors (Shardy's op sharding rules).
//
// A factor is an index that dimensions of operands and results share: dot f32[i,k] x f32[k,j] -> f32[i,j] has
// factors i, j (pass-through) and k (reduction). Propagation and partitioning know factors, not opcodes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hlo/module.h"
#include "sharding/model/mesh.h"

namespace xlad::sharding {

enum class FactorKind {
  kPassThrough,      // Shards compute independently.
  kReduction,        // Operand-only; split: every shard has a partial result, to be reduced.
  kNeedReplication,  // Must be whole while the op runs.
  kPermutation,      // Can be split, but shards need a neighbour's data (slice, pad, reverse, window).
};

struct Factor {
  // Of the dimension, or of the part of it where a dimension has several factors. Where a kPermutation or
  // kNeedReplication factor joins dimensions of different sizes (slice, pad, windows): the largest.
  int64_t size = 1;
  FactorKind kind = FactorKind::kPassThrough;
  bool blocked = false;  // Propagation does not go through.
  // How the partial results of a kReduction factor combine; kReduce: only by the instruction's own computation
  // (argmax). Partial results of gather and dot are added.
  hlo::Opcode reduction = hlo::Opcode::kAdd;
};

// The factors of one dimension, major to minor; where there are several, their sizes multiply to its size. Every
// dimension has at least one, except where a rule has no factors at all; those that nothing else shares come last.
using DimensionFactors = std::vector<int>;
// One entry a dimension.
using TensorFactors = std::vector<DimensionFactors>;

struct OpRule {
  std::vector<Factor> factors;
  std::vector<TensorFactors> operands;  // One a flattened operand leaf.
  std::vector<TensorFactors> results;   // One a flattened result leaf.
  std::string ToString() const;         // "([i, k],[k, j])->([i, j]) {i=8, j=16, k=4} reduction={k}"
};

// The rule of an instruction, or an empty one (no factors) where nothing propagates through it. Control flow,
// calls, tuples and annotations are no ops: propagation treats them as data flow.
OpRule RuleOf(const hlo::Instruction& instruction);

// "i", "j", ...: how messages name factor `factor` of any rule.
std::string FactorName(int factor);

// Whether RuleOf has a row for the opcode or says explicitly that it has none; for the completeness test.
bool HasRule(hlo::Opcode opcode);

}  // namespace xlad::sharding
