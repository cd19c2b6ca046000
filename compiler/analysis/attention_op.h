// Attention as a library op: a fusion of kind kCustom whose computation is an attention.
//
// The pass fuse-attention makes such fusions. Their computation has the matrix products that compute scores, the
// products that use scores, and everything between them. The results are products that use scores, and values with one
// element for each row. The HLO evaluator runs such a fusion like any other one. The runtime executes its descriptor.
#pragma once

#include <optional>
#include <vector>

#include "compiler/analysis/hlo_names.h"
#include "compiler/analysis/score_space.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

inline bool IsAttention(const Instruction& instruction) {
  return instruction.opcode() == Opcode::kFusion && instruction.attributes().fusion_kind == "kCustom";
}

// Whether an instruction of `space` that is not a matrix product may be in the computation of an attention.
bool IsScoreOperation(const Instruction& instruction, const ScoreSpace& space);

// Returns the descriptor, or nullopt if the fusion is not an attention.
std::optional<AttentionOp> MakeAttentionOp(const Instruction& fusion);

// Whether a value of `op` has one element for each column. `wide` has the results for the values before it.
bool IsWide(const AttentionOp& op, const AttentionOp::Value& value, const std::vector<bool>& wide);

}  // namespace xlad::compiler
