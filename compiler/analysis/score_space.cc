#include "compiler/analysis/score_space.h"

#include <algorithm>

#include "base/containers.h"

namespace xlad::compiler {
namespace {

// More related instructions than this are not an attention.
constexpr size_t kMaxSize = 1000;

// Returns the dimensions of `to`, a reshape of `from`. Nullopt unless both shapes have the same dimensions of size
// greater than 1, in the same order.
std::optional<ScoreDims> ThroughReshape(const Shape& from, const Shape& to, const ScoreDims& dims) {
  ScoreDims result(to.ndim(), -1);
  int64_t d = 0;
  for (int64_t t = 0; t < to.ndim(); ++t) {
    if (to.dim(t) == 1) continue;
    while (d < from.ndim() && from.dim(d) == 1) ++d;
    if (d == from.ndim() || from.dim(d) != to.dim(t)) return std::nullopt;
    result[t] = dims[d++];
  }
  return result;
}

size_t CountDims(const ScoreDims& dims) { return dims.size() - std::count(dims.begin(), dims.end(), -1); }

std::vector<int> Named(const ScoreDims& dims) {
  std::vector<int> named;
  std::copy_if(dims.begin(), dims.end(), std::back_inserter(named), [](int d) { return d >= 0; });
  return named;
}

// The dimensions of a dot's result whose size is not 1: batch, free dimensions of the lhs, free dimensions of the rhs.
struct ProductDims {
  std::vector<int> batch, lhs, rhs;
};
ProductDims SplitDims(const Instruction& dot, const ScoreDims& dims) {
  const size_t batch = dot.attributes().dot->lhs_batch.size();
  const size_t lhs = batch + FreeDimensionsOf(dot).lhs.size();
  return {Named({dims.begin(), dims.begin() + batch}), Named({dims.begin() + batch, dims.begin() + lhs}),
          Named({dims.begin() + lhs, dims.end()})};
}

std::vector<int> Sorted(std::vector<int> list) {
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace

FreeDimensions FreeDimensionsOf(const Instruction& dot) {
  const hlo::DotDimensions& dims = *dot.attributes().dot;
  FreeDimensions free;
  for (int64_t d = 0; d < dot.operand(0)->shape().ndim(); ++d) {
    if (!Contains(dims.lhs_batch, d) && !Contains(dims.lhs_contracting, d)) free.lhs.push_back(d);
  }
  for (int64_t d = 0; d < dot.operand(1)->shape().ndim(); ++d) {
    const bool is_group = Contains(dot.attributes().group_dims, d);
    if (!Contains(dims.rhs_batch, d) && !Contains(dims.rhs_contracting, d) && !is_group) free.rhs.push_back(d);
  }
  return free;
}

std::optional<ScoreDims> OperandScoreDims(const Instruction& user, int64_t k, const ScoreDims& dims) {
  const Shape& shape = user.operand(k)->shape();
  if (!shape.is_array()) return std::nullopt;
  switch (user.opcode()) {
    case Opcode::kBroadcast: {
      ScoreDims result;
      for (const int64_t d : user.dimensions()) result.push_back(dims[d]);
      return result;
    }
    case Opcode::kTranspose: {
      ScoreDims result(dims.size());
      for (size_t d = 0; d < dims.size(); ++d) result[user.dimensions()[d]] = dims[d];
      return result;
    }
    case Opcode::kReshape:
      return ThroughReshape(user.shape(), shape, dims);
    default:
      if (!hlo::IsElementwise(user.opcode())) return std::nullopt;
      return shape.is_scalar() ? ScoreDims{} : dims;
  }
}

std::optional<ScoreDims> UserScoreDims(const Instruction& user, int64_t k, const ScoreDims& dims) {
  if (!user.shape().is_array()) return std::nullopt;
  switch (user.opcode()) {
    case Opcode::kTranspose: {
      ScoreDims result;
      for (const int64_t d : user.dimensions()) result.push_back(dims[d]);
      return result;
    }
    case Opcode::kReshape:
      return ThroughReshape(user.operand(0)->shape(), user.shape(), dims);
    case Opcode::kReduce: {
      if (k != 0 || user.operand_count() != 2) return std::nullopt;
      ScoreDims result;
      for (int64_t d = 0; d < std::ssize(dims); ++d) {
        if (!Contains(user.dimensions(), d)) result.push_back(dims[d]);
      }
      return result;
    }
    default:
      if (!hlo::IsElementwise(user.opcode()) || user.shape().dims() != user.operand(k)->shape().dims()) {
        return std::nullopt;
      }
      return dims;
  }
}

ScoreSpace::ScoreSpace(const Instruction& seed) {
  for (const int64_t size : seed.shape().dims()) {
    sizes_.push_back(size);
    full_ += size == 1 ? 0 : 1;
  }
}

std::optional<ScoreSpace> ScoreSpace::Around(const Instruction& seed) {
  if (!seed.shape().is_array() || seed.shape().elements() == 0) return std::nullopt;
  ScoreSpace space(seed);
  if (!space.Grow(seed) || !space.ChooseRoles()) return std::nullopt;
  return space;
}

// Adds an instruction and, recursively, its operands, as far as their dimensions are known. Returns false if the space
// would have more than kMaxSize instructions.
bool ScoreSpace::Enter(const Instruction& start, ScoreDims dims) {
  std::vector<std::pair<const Instruction*, ScoreDims>> pending = {{&start, std::move(dims)}};
  while (!pending.empty()) {
    auto [at, found] = std::move(pending.back());
    pending.pop_back();
    auto [entry, fresh] = dims_.emplace(at, found);
    if (!fresh) {
      if (entry->second != found) ambiguous_.insert(at);
      continue;
    }
    if (dims_.size() > kMaxSize) return false;
    for (int64_t k = 0; k < at->operand_count(); ++k) {
      std::optional<ScoreDims> operand = OperandScoreDims(*at, k, found);
      if (operand.has_value()) pending.emplace_back(at->operand(k), *std::move(operand));
    }
  }
  return true;
}

// Whether the instruction is computed from scores, as far as its operands are known.
bool ScoreSpace::IsFromScores(const Instruction& instruction) {
  if (scores_.contains(&instruction)) return true;
  if (others_.contains(&instruction)) return false;
  const auto at = dims_.find(&instruction);
  if (at == dims_.end()) return false;
  bool is_from_scores = instruction.opcode() == Opcode::kDot && CountDims(at->second) == full_;
  for (int64_t k = 0; k < instruction.operand_count(); ++k) {
    if (OperandScoreDims(instruction, k, at->second).has_value()) {
      is_from_scores |= IsFromScores(*instruction.operand(k));
    }
  }
  if (is_from_scores) {
    AddScore(instruction);
  } else {
    others_.insert(&instruction);
  }
  return is_from_scores;
}

void ScoreSpace::AddScore(const Instruction& instruction) {
  if (scores_.insert(&instruction).second) pending_.push_back(&instruction);
}

// Adds users of values that are computed from scores, and operands of all values, until nothing changes.
bool ScoreSpace::Grow(const Instruction& seed) {
  ScoreDims all;
  for (int d = 0; d < std::ssize(sizes_); ++d) all.push_back(sizes_[d] == 1 ? -1 : d);
  if (!Enter(seed, all) || !IsFromScores(seed)) return false;
  while (!pending_.empty()) {
    const Instruction* at = pending_.back();
    pending_.pop_back();
    const ScoreDims dims = dims_.at(at);
    if (CountDims(dims) == 0) continue;  // Scalars.
    for (const Instruction* user : at->users()) {
      // A broadcast of a reduction may have been added before the operand of the reduction.
      if (user->opcode() == Opcode::kBroadcast && dims_.contains(user)) AddScore(*user);
      for (int64_t k = 0; k < user->operand_count(); ++k) {
        if (user->operand(k) != at) continue;
        std::optional<ScoreDims> found = UserScoreDims(*user, k, dims);
        if (!found.has_value()) continue;
        if (!Enter(*user, *std::move(found))) return false;
        AddScore(*user);
        for (const Instruction* operand : user->operands()) IsFromScores(*operand);
      }
    }
  }
  return std::none_of(ambiguous_.begin(), ambiguous_.end(),
                      [&](const Instruction* at) { return scores_.contains(at); });
}

bool ScoreSpace::ChooseRoles() {
  std::optional<int> column;
  for (const Instruction* at : scores_) {
    if (at->opcode() != Opcode::kReduce || !dims_.contains(at->operand(0)) || !IsFull(*at->operand(0))) continue;
    const ScoreDims& operand = dims_.at(at->operand(0));
    std::vector<int> reduced;
    for (const int64_t d : at->dimensions()) {
      if (operand[d] >= 0) reduced.push_back(operand[d]);
    }
    if (reduced.size() != 1) continue;
    if (column.has_value() && column != reduced[0]) return false;
    column = reduced[0];
  }
  has_reduction_ = column.has_value();
  // The first product in instruction order determines the roles, so that the result does not depend on hashing.
  for (const auto& at : dims_.begin()->first->parent()->instructions()) {
    if (at->opcode() != Opcode::kDot || !scores_.contains(at.get())) continue;
    const ProductDims dims = SplitDims(*at, dims_.at(at.get()));
    // Without a reduction, either side may be the column.
    if (!column.has_value() && dims.rhs.size() == 1) column = dims.rhs[0];
    if (!column.has_value() && dims.lhs.size() == 1) column = dims.lhs[0];
    if (!column.has_value()) continue;
    column_ = *column;
    const bool right = dims.rhs == std::vector<int>{column_};
    if (!right && dims.lhs != std::vector<int>{column_}) continue;
    batch_ = dims.batch;
    rows_ = right ? dims.lhs : dims.rhs;
    return true;
  }
  return false;
}

const ScoreDims* ScoreSpace::DimsOf(const Instruction& instruction) const {
  const auto at = dims_.find(&instruction);
  return at == dims_.end() ? nullptr : &at->second;
}

bool ScoreSpace::IsFull(const Instruction& instruction) const {
  const ScoreDims* dims = DimsOf(instruction);
  return dims != nullptr && CountDims(*dims) == full_;
}

bool ScoreSpace::IsScoreProduct(const Instruction& dot) const {
  if (dot.opcode() != Opcode::kDot || dot.operand_count() != 2 || !IsFull(dot)) return false;
  const ProductDims dims = SplitDims(dot, *DimsOf(dot));
  if (Sorted(dims.batch) != Sorted(batch_)) return false;
  const std::vector<int> column = {column_};
  return (dims.rhs == column && Sorted(dims.lhs) == Sorted(rows_)) ||
         (dims.lhs == column && Sorted(dims.rhs) == Sorted(rows_));
}

}  // namespace xlad::compiler
