// The estimated times of an attention as library ops and as separate steps, from which fuse-attention chooses.
//
// The library op stores no scores. It pays with products of small tiles, with operations that are interpreted row by
// row, with copies of its operands, and, in the backward pass, by computing the scores again. Separate steps write and
// read scores in memory, but their products are those of the library and their operations are compiled. An estimate is
// a sum of counts times constants, which were fitted to measurements (bench/attention_cost). It is a function of the
// program alone.
#pragma once

#include <string>
#include <vector>

#include "compiler/analysis/hlo_names.h"
#include "compiler/analysis/score_space.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

struct CostTerm {
  const char* name;  // What is counted.
  double count;
  double ns;  // The time of one, on one core.
};
using CostTerms = std::vector<CostTerm>;

double TotalNs(const CostTerms& terms);

struct AttentionCost {
  CostTerms fused, separate;
  bool is_fused = false;  // What was chosen.
};

// Scores of more bytes than these are not stored, whatever the times are.
inline constexpr int64_t kMaxScoreBytes = int64_t{1} << 27;

// Adds the terms of one library op.
void AddFusedTerms(const AttentionOp& op, CostTerms* terms);

// The terms of separate steps for the instructions of an attention, which are different from each other: everything
// that is computed from scores, and the products that use scores.
CostTerms SeparateTerms(const std::vector<const Instruction*>& instructions, const ScoreSpace& space);

}  // namespace xlad::compiler
