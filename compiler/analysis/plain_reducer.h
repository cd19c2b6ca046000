// Reducers that apply one opcode. The functions are inline because the library that includes LLVM does not link the
// libraries of the other folders.
#pragma once

#include <optional>

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// The maximum number of lanes of a reduction in rows: four vectors of 16 floats, so that a step does not depend on the
// one just before it.
inline constexpr int64_t kMaxReductionLanes = 64;

// The opcode that a reducer applies to its two scalar parameters, or nullopt if it does anything else. The order of the
// parameters and the attributes of the opcode are ignored.
inline std::optional<Opcode> PlainReducer(const Computation& computation) {
  const Instruction* root = computation.root();
  if (computation.parameters().size() != 2 || root->operand_count() != 2) return std::nullopt;
  const Instruction* x = computation.parameter(0);
  const Instruction* y = computation.parameter(1);
  const bool straight = root->operand(0) == x && root->operand(1) == y;
  const bool swapped = root->operand(0) == y && root->operand(1) == x;
  if (!straight && !swapped) return std::nullopt;
  return root->opcode();
}

// Whether the reducer is the sum, product, maximum or minimum of f32 or f64. Values may be combined by it in any order,
// within the accuracy of floating-point arithmetic, and it has an identity.
inline bool IsReorderableFloat(const Computation& computation) {
  const ElementType type = computation.root()->shape().is_array() ? computation.root()->shape().type()
                                                                  : ElementType::kPred;
  if (type != ElementType::kF32 && type != ElementType::kF64) return false;
  const std::optional<Opcode> plain = PlainReducer(computation);
  return plain == Opcode::kAdd || plain == Opcode::kMultiply || plain == Opcode::kMaximum || plain == Opcode::kMinimum;
}

}  // namespace xlad::compiler
