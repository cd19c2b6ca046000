// The dimensions that the arrays of an attention have in common.
//
// Attention computes scores[batch, row, column], applies elementwise operations and reductions over the columns to
// them, and multiplies the result by other matrices. For each array that is connected with such scores, a ScoreSpace
// maps the dimensions of the array to dimensions of the scores. It looks through transposes, broadcasts, and reshapes
// that add or drop dimensions of size 1. Example: for f32[8,64,64] scores (dimensions 0, 1 and 2), a mask pred[64,64]
// that is broadcast along the first dimension has dimensions {1,2}, and the sum over columns f32[8,64] has {0,1}.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// For each dimension of an array, the corresponding dimension of the scores, or -1 if its size is 1.
using ScoreDims = std::vector<int>;

class ScoreSpace {
 public:
  // Returns the space of the scores from which `seed` is computed. `seed` must have all dimensions of the scores.
  // Dimensions of size 1 are ignored. The dimension that is reduced is the column. If there is no reduction, the column
  // is the only free dimension of an operand of the first product that has such an operand; if both operands have only
  // one free dimension, it is the right operand's. Returns nullopt in each of these cases:
  // - `seed` is not computed from a matrix product.
  // - Different paths map an instruction that depends on scores to different dimensions.
  // - The space has more than 1000 instructions.
  // - Different dimensions are reduced.
  // - No product has an operand whose only free dimension is the column.
  static std::optional<ScoreSpace> Around(const Instruction& seed);

  // The dimensions of an instruction; null if it is not in the space.
  const ScoreDims* DimsOf(const Instruction& instruction) const;
  // Whether the instruction has one element for each score.
  bool IsFull(const Instruction& instruction) const;
  // Whether the instruction is computed from scores.
  bool DependsOnScores(const Instruction& instruction) const { return scores_.contains(&instruction); }
  // Whether the dot is a product that computes scores: its batch dimensions are `batch`, and the free dimensions of its
  // two sides are `rows` and `column`.
  bool IsScoreProduct(const Instruction& dot) const;

  const std::vector<int>& batch() const { return batch_; }
  const std::vector<int>& rows() const { return rows_; }
  int column() const { return column_; }
  // Whether scores are reduced over the column.
  bool has_reduction() const { return has_reduction_; }
  int64_t SizeOf(int dimension) const { return sizes_[dimension]; }
  // All instructions that depend on scores, in no particular order.
  const absl::flat_hash_set<const Instruction*>& scores() const { return scores_; }

 private:
  explicit ScoreSpace(const Instruction& seed);
  bool Grow(const Instruction& seed);
  bool Enter(const Instruction& start, ScoreDims dims);
  bool IsFromScores(const Instruction& instruction);
  void AddScore(const Instruction& instruction);
  bool ChooseRoles();

  std::vector<int64_t> sizes_;
  std::vector<int> batch_, rows_;
  int column_ = -1;
  size_t full_ = 0;  // The number of dimensions of the scores whose size is not 1.
  absl::flat_hash_map<const Instruction*, ScoreDims> dims_;
  // Instructions for which different dimensions were found. None of them may depend on scores.
  absl::flat_hash_set<const Instruction*> ambiguous_;
  // The instructions that depend on scores, and other instructions that were visited.
  absl::flat_hash_set<const Instruction*> scores_, others_;
  std::vector<const Instruction*> pending_;  // Members of scores_ whose users have not been visited.
  bool has_reduction_ = false;
};

// The dimensions of operand `k` if those of `user` are `dims`. Nullopt unless the operand is an array and the user is
// elementwise, a broadcast, a transpose, or a reshape that adds or drops dimensions of size 1.
std::optional<ScoreDims> OperandScoreDims(const Instruction& user, int64_t k, const ScoreDims& dims);

// The dimensions of `user` if those of its operand `k` are `dims`. Nullopt unless the user is an elementwise
// instruction of the operand's sizes, a transpose, the reduction of one array, or a reshape that adds or drops
// dimensions of size 1.
std::optional<ScoreDims> UserScoreDims(const Instruction& user, int64_t k, const ScoreDims& dims);

// The free dimensions of the two operands of a dot or ragged-dot.
struct FreeDimensions {
  Dims lhs, rhs;  // Dimensions of the operands that are neither batch nor contracting nor group dimensions.
};
FreeDimensions FreeDimensionsOf(const Instruction& dot);

}  // namespace xlad::compiler
