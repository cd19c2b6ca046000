#include "compiler/analysis/row_form.h"

#include <algorithm>

#include "base/containers.h"
#include "base/sort_distinct.h"

namespace xlad::compiler {
namespace {

// If a value is needed at more positions than this, a kernel would have too many loads.
constexpr size_t kMaxPositions = 4;

// The instructions of a fusion in reverse order, or the instruction itself.
std::vector<const Instruction*> UsersFirst(const Instruction& fusion) {
  if (fusion.opcode() != Opcode::kFusion) return {&fusion};
  std::vector<const Instruction*> result;
  for (const auto& instruction : fusion.called()[0]->instructions()) result.push_back(instruction.get());
  std::reverse(result.begin(), result.end());
  return result;
}

bool IsSingleReduction(const Instruction& instruction) {
  return instruction.opcode() == Opcode::kReduce && instruction.operand_count() == 2;
}

// The sizes of loops over rows and columns that make all reshapes between full values or between row values affine.
// They are the quotients of neighboring numbers in the sorted list of all products of inner dimensions. Empty if one
// product does not divide the next, as for [4,9] and [6,6].
Dims FinestLoops(const Instruction& fusion, int64_t rows, int64_t columns) {
  std::vector<int64_t> products = {1, columns, rows * columns};
  for (const Instruction* value : UsersFirst(fusion)) {
    if (!value->shape().is_array()) continue;
    const int64_t elements = value->shape().elements();
    if (elements != rows * columns && elements != rows) continue;
    int64_t product = elements == rows ? columns : 1;
    for (int64_t d = value->shape().ndim(); d-- > 0;) products.push_back(product *= value->shape().dim(d));
  }
  SortDistinct(&products);
  Dims loops;
  for (size_t i = products.size() - 1; i > 0; --i) {
    if (products[i] % products[i - 1] != 0) return {};
    loops.push_back(products[i] / products[i - 1]);
  }
  return loops;
}

// Whether all operands are arrays and no result occurs twice.
bool HasArraysOnly(const Instruction& fusion) {
  for (const Instruction* operand : fusion.operands()) {
    if (!operand->shape().is_array()) return false;
  }
  std::vector<const Instruction*> results = ResultsOf(fusion);
  std::sort(results.begin(), results.end());
  return std::adjacent_find(results.begin(), results.end()) == results.end();
}

class RowAnalysis {
 public:
  RowAnalysis(const Instruction& fusion, int64_t rows, int64_t columns, const Dims& loops) : fusion_(fusion) {
    form_.rows = rows;
    form_.columns = columns;
    form_.loops = loops;
    form_.full.factors.assign(loops.size(), 0);
    form_.row.factors.assign(loops.size(), 0);
    int64_t stride = 1;
    for (size_t l = loops.size(); l-- > 0;) {
      form_.full.factors[l] = stride;
      if (stride >= columns) {
        form_.row.factors[l] = stride / columns;
        ++form_.row_loops;
      }
      stride *= loops[l];
    }
  }

  std::optional<RowForm> Run() {
    for (const Instruction* result : ResultsOf(fusion_)) {
      if (!result->shape().is_array()) return std::nullopt;
      const int64_t elements = result->shape().elements();
      if (elements != form_.rows * form_.columns && elements != form_.rows) return std::nullopt;
      Need(result, form_.IsFull(*result) ? form_.full : form_.row);
    }
    for (const Instruction* value : UsersFirst(fusion_)) {
      if (IsInput(fusion_, *value) || value->opcode() == Opcode::kTuple) continue;
      const std::vector<Affine> at = form_.positions[value];
      for (const Affine& position : at) {
        if (!Visit(*value, position)) return std::nullopt;
      }
    }
    for (const auto& [value, positions] : form_.positions) {
      if (positions.size() > kMaxPositions) return std::nullopt;
    }
    return std::move(form_);
  }

 private:
  void Need(const Instruction* value, const Affine& position) {
    std::vector<Affine>& known = form_.positions[value];
    if (!Contains(known, position)) known.push_back(position);
  }

  // Adds the positions of operands that the element at `position` of the value needs.
  bool Visit(const Instruction& value, const Affine& position) {
    if (!value.shape().is_array() || form_.positions[&value].size() > kMaxPositions) return false;
    if (IsSingleReduction(value)) return VisitReduction(value, position);
    if (value.opcode() == Opcode::kIota) {
      return IndicesAt(position, form_.loops, value.shape().dims()).has_value();
    }
    if (value.opcode() == Opcode::kConstant) return value.shape().elements() == 1;
    if (value.operand_count() == 0) return false;
    for (int64_t k = 0; k < value.operand_count(); ++k) {
      const auto at = OperandPosition(value, k, position, form_.loops);
      if (!at.has_value()) return false;
      Need(value.operand(k), *at);
    }
    return true;
  }

  // A reduction along the columns needs its operand at the operand's own position.
  bool VisitReduction(const Instruction& reduce, const Affine& position) {
    const Instruction& operand = *reduce.operand(0);
    if (position != form_.row || !form_.IsFull(operand)) return false;
    Affine column = form_.full;
    for (size_t l = 0; l < form_.row_loops; ++l) column.factors[l] = 0;
    Dims reduced;
    for (const int64_t d : reduce.dimensions()) reduced.push_back(operand.shape().dim(d));
    Dims sorted = reduce.dimensions();
    std::sort(sorted.begin(), sorted.end());
    if (sorted != reduce.dimensions()) return false;
    const auto kept = IndicesAt(position, form_.loops, reduce.shape().dims());
    const auto along = IndicesAt(column, form_.loops, reduced);
    if (!kept.has_value() || !along.has_value()) return false;
    std::vector<Affine> indices;
    size_t k = 0, a = 0;
    for (int64_t d = 0; d < operand.shape().ndim(); ++d) {
      const bool is_reduced = Contains(sorted, d);
      indices.push_back(is_reduced ? (*along)[a++] : (*kept)[k++]);
    }
    if (PositionOf(indices, operand.shape().dims(), form_.loops.size()) != form_.full) return false;
    Need(&operand, form_.full);
    Need(reduce.operand(1), Affine{0, std::vector<int64_t>(form_.loops.size(), 0)});
    return true;
  }

  const Instruction& fusion_;
  RowForm form_;
};

}  // namespace

bool RowForm::IsOwn(const Instruction& value) const {
  const auto found = positions.find(&value);
  return found != positions.end() && found->second == std::vector<Affine>{IsFull(value) ? full : row};
}

bool IsInput(const Instruction& fusion, const Instruction& value) {
  return fusion.opcode() == Opcode::kFusion ? value.opcode() == Opcode::kParameter : &value != &fusion;
}

std::vector<const Instruction*> ResultsOf(const Instruction& fusion) {
  if (fusion.opcode() != Opcode::kFusion) return {&fusion};
  const Instruction* root = fusion.called()[0]->root();
  if (root->opcode() != Opcode::kTuple) return {root};
  return {root->operands().begin(), root->operands().end()};
}

std::optional<RowForm> RowFormOf(const Instruction& fusion, int64_t rows, int64_t columns) {
  if (rows < 2 || columns < 2 || !HasArraysOnly(fusion)) return std::nullopt;
  if (auto form = RowAnalysis(fusion, rows, columns, {rows, columns}).Run()) return form;
  const Dims loops = FinestLoops(fusion, rows, columns);
  if (loops.size() <= 2) return std::nullopt;
  return RowAnalysis(fusion, rows, columns, loops).Run();
}

std::optional<RowForm> RowFormOf(const Instruction& fusion) {
  for (const Instruction* value : UsersFirst(fusion)) {
    if (!IsSingleReduction(*value)) continue;
    const int64_t rows = value->shape().elements(), elements = value->operand(0)->shape().elements();
    return rows > 0 ? RowFormOf(fusion, rows, elements / rows) : std::nullopt;
  }
  return std::nullopt;
}

absl::flat_hash_map<const Instruction*, int> LevelsOf(const Instruction& fusion, const RowForm&) {
  absl::flat_hash_map<const Instruction*, int> levels;
  std::vector<const Instruction*> values = UsersFirst(fusion);
  std::reverse(values.begin(), values.end());
  for (const Instruction* value : values) {
    int level = 0;
    if (!IsInput(fusion, *value)) {
      for (const Instruction* operand : value->operands()) level = std::max(level, levels[operand]);
    }
    levels[value] = level + (IsSingleReduction(*value) ? 1 : 0);
  }
  return levels;
}

std::vector<std::pair<int, int>> RowPairs(const Instruction& fusion, const RowForm& form) {
  auto levels = LevelsOf(fusion, form);
  // The last level at which a value may be computed or read.
  absl::flat_hash_map<const Instruction*, int> last;
  for (const Instruction* value : UsersFirst(fusion)) {
    if (value->opcode() == Opcode::kTuple) continue;
    int& own = last[value];
    own = std::max(own, levels[value]);
    const int used = IsSingleReduction(*value) ? levels[value] - 1 : own;
    for (const Instruction* operand : value->operands()) {
      int& of_operand = last[operand];
      of_operand = std::max(of_operand, used);
    }
  }
  const std::vector<const Instruction*> results = ResultsOf(fusion);
  std::vector<std::pair<int, int>> pairs;
  for (size_t r = 0; r < results.size(); ++r) {
    const Shape& shape = results[r]->shape();
    for (int64_t k = 0; k < fusion.operand_count(); ++k) {
      const Instruction* input =
          fusion.opcode() == Opcode::kFusion ? fusion.called()[0]->parameter(k) : fusion.operand(k);
      if (!input->shape().is_array() || input->shape().elements() != shape.elements() || !form.IsFull(*input) ||
          tensor::ByteWidth(input->shape().type()) != tensor::ByteWidth(shape.type())) {
        continue;
      }
      if (form.IsOwn(*input) && last[input] <= levels[results[r]]) pairs.emplace_back(r, k);
    }
  }
  return pairs;
}

}  // namespace xlad::compiler
