#include "compiler/analysis/affine.h"

#include <algorithm>
#include <cstdlib>

#include "tensor/indices.h"

namespace xlad::compiler {
namespace {

Affine Zero(size_t loops) { return {0, std::vector<int64_t>(loops, 0)}; }

// Adds `factor` times `x` to `sum`.
void AddTimes(const Affine& x, int64_t factor, Affine* sum) {
  sum->constant += factor * x.constant;
  for (size_t l = 0; l < x.factors.size(); ++l) sum->factors[l] += factor * x.factors[l];
}

std::vector<Affine> TransposedIndices(const Instruction& transpose, const std::vector<Affine>& at) {
  std::vector<Affine> result(at.size());
  for (size_t d = 0; d < at.size(); ++d) result[transpose.dimensions()[d]] = at[d];
  return result;
}

// The indices in the operand of an instruction that moves elements, or empty for other instructions.
std::vector<Affine> MovedIndices(const Instruction& user, const std::vector<Affine>& at) {
  const Dims& sizes = user.operand(0)->shape().dims();
  std::vector<Affine> result;
  switch (user.opcode()) {
    case Opcode::kBroadcast:
      for (const int64_t d : user.dimensions()) result.push_back(at[d]);
      return result;
    case Opcode::kTranspose:
      return TransposedIndices(user, at);
    case Opcode::kSlice:
      for (size_t d = 0; d < at.size(); ++d) {
        const hlo::SliceDimension& slice = user.attributes().slice[d];
        Affine index = Zero(at[d].factors.size());
        AddTimes(at[d], slice.stride, &index);
        index.constant += slice.start;
        result.push_back(index);
      }
      return result;
    case Opcode::kReverse:
      result = at;
      for (const int64_t d : user.dimensions()) {
        Affine index = Zero(at[d].factors.size());
        AddTimes(at[d], -1, &index);
        index.constant += sizes[d] - 1;
        result[d] = index;
      }
      return result;
    default:
      return {};
  }
}

bool MovesElements(Opcode opcode) {
  return opcode == Opcode::kBroadcast || opcode == Opcode::kTranspose || opcode == Opcode::kSlice ||
         opcode == Opcode::kReverse;
}

}  // namespace

int64_t ValueOf(const Affine& position, const Dims& indices) {
  int64_t value = position.constant;
  for (size_t l = 0; l < indices.size(); ++l) value += position.factors[l] * indices[l];
  return value;
}

int64_t LowestOf(const Affine& position, const Dims& loops) {
  int64_t lowest = position.constant;
  for (size_t l = 0; l < loops.size(); ++l) lowest += std::min<int64_t>(0, position.factors[l] * (loops[l] - 1));
  return lowest;
}

int64_t HighestOf(const Affine& position, const Dims& loops) {
  int64_t highest = position.constant;
  for (size_t l = 0; l < loops.size(); ++l) highest += std::max<int64_t>(0, position.factors[l] * (loops[l] - 1));
  return highest;
}

std::optional<std::vector<Affine>> IndicesAt(const Affine& position, const Dims& loops, const Dims& sizes) {
  std::vector<Affine> indices(sizes.size(), Zero(loops.size()));
  // The lowest position and the magnitudes of the factors are mixed-radix numbers whose radices are `sizes`. They are
  // split into digits, the last dimension first.
  int64_t rest = LowestOf(position, loops), stride = 1;
  std::vector<bool> taken(loops.size(), false);
  for (size_t d = sizes.size(); d-- > 0;) {
    Affine& index = indices[d];
    const int64_t outer = stride * sizes[d];
    for (size_t l = 0; l < loops.size(); ++l) {
      const int64_t magnitude = std::abs(position.factors[l]);
      if (taken[l] || magnitude == 0 || loops[l] <= 1 || (d > 0 && magnitude >= outer)) continue;
      if (magnitude % stride != 0) return std::nullopt;
      index.factors[l] = position.factors[l] / stride;
      taken[l] = true;
    }
    const int64_t lowest = d > 0 ? rest % sizes[d] : rest;
    rest = d > 0 ? rest / sizes[d] : 0;
    index.constant = lowest - LowestOf(index, loops);
    if (HighestOf(index, loops) > sizes[d] - 1) return std::nullopt;
    stride = outer;
  }
  return indices;
}

Affine PositionOf(const std::vector<Affine>& indices, const Dims& sizes, size_t loops) {
  Affine position = Zero(loops);
  const Dims strides = tensor::Strides(sizes);
  for (size_t d = 0; d < sizes.size(); ++d) AddTimes(indices[d], strides[d], &position);
  return position;
}

std::optional<Affine> OperandPosition(const Instruction& user, int64_t k, const Affine& at, const Dims& loops) {
  const Instruction& operand = *user.operand(k);
  if (!operand.shape().is_array() || !user.shape().is_array()) return std::nullopt;
  const bool keeps = (hlo::IsElementwise(user.opcode()) || user.opcode() == Opcode::kReshape) &&
                     operand.shape().elements() == user.shape().elements();
  if (keeps) return at;
  const bool scalar = operand.shape().elements() == 1;
  if (scalar && (hlo::IsElementwise(user.opcode()) || user.opcode() == Opcode::kBroadcast)) return Zero(loops.size());
  if (!MovesElements(user.opcode())) return std::nullopt;
  const auto indices = IndicesAt(at, loops, user.shape().dims());
  if (!indices.has_value()) return std::nullopt;
  return PositionOf(MovedIndices(user, *indices), operand.shape().dims(), loops.size());
}

}  // namespace xlad::compiler
