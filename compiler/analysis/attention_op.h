// Attention as a library op: a fusion of kind kCustom whose computation is an attention.
//
// The pass fuse-attention makes such fusions. Their computation has the matrix products that make scores, everything
// between them and the products that use the scores, and as results these products and values with one element for each
// row. The evaluator runs it as any other fusion; the runtime runs its descriptor.
#pragma once

#include <optional>

#include "compiler/analysis/hlo_names.h"
#include "compiler/analysis/score_space.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

inline bool IsAttention(const Instruction& instruction) {
  return instruction.opcode() == Opcode::kFusion && instruction.attributes().fusion_kind == "kCustom";
}

// Whether an instruction of a space, elementwise or a reduction over its columns, may be in the computation.
bool IsScoreOperation(const Instruction& instruction, const ScoreSpace& space);

// The descriptor. Nullopt if the computation is not an attention.
std::optional<AttentionOp> MakeAttentionOp(const Instruction& fusion);

}  // namespace xlad::compiler
