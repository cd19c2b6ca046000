// The estimated times of an attention as library ops and as separate steps, from which fuse-attention chooses.
//
// The library op does not store scores. Instead, it computes products of small tiles, interprets other operations row
// by row, and copies its operands. In the backward pass, it computes the scores again. Separate steps write and read
// scores in memory, but oneDNN computes their products, and their other operations are compiled. An estimate is a sum
// of counts times constants, which were fitted to measurements (bench/attention_cost). An estimate depends only on the
// program.
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
  double ns;  // The time of one counted item on one core, in nanoseconds.
};
using CostTerms = std::vector<CostTerm>;

double TotalNs(const CostTerms& terms);

struct AttentionCost {
  CostTerms fused, separate;
  bool is_fused = false;  // Whether the library op was chosen.
};

// If the scores have more bytes than this, the library op is chosen regardless of the estimates.
inline constexpr int64_t kMaxScoreBytes = 1 << 27;

// Adds the terms of one library op.
void AddFusedTerms(const AttentionOp& op, CostTerms* terms);

// The terms of separate steps for the instructions of an attention: all instructions that are computed from scores, and
// the products that use scores. No instruction may occur twice.
CostTerms SeparateTerms(const std::vector<const Instruction*>& instructions, const ScoreSpace& space);

}  // namespace xlad::compiler
