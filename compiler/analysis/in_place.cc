#include "compiler/analysis/in_place.h"

#include "absl/container/flat_hash_map.h"
#include "compiler/analysis/attention_op.h"
#include "compiler/analysis/hlo_names.h"
#include "compiler/analysis/row_form.h"
#include "hlo/analysis/leaves.h"

namespace xlad::compiler {
namespace {

using Pairs = std::vector<std::pair<int, int>>;

bool SameBytes(const Shape& a, const Shape& b) {
  return a.is_array() && b.is_array() && a.elements() == b.elements() &&
         tensor::ByteWidth(a.type()) == tensor::ByteWidth(b.type());
}

Pairs ElementwisePairs(const Instruction& instruction) {
  Pairs pairs;
  for (int k = 0; k < instruction.operand_count(); ++k) {
    if (SameBytes(instruction.shape(), instruction.operand(k)->shape())) pairs.emplace_back(0, k);
  }
  return pairs;
}

// Returns for each parameter of a fusion whether all roots read it at their own index: at least one root depends on the
// parameter, and element i of a root depends on no other element of the parameter than element i.
std::vector<bool> ReadAtSameIndex(const Computation& fused, const std::vector<const Instruction*>& roots) {
  struct Reached {
    bool same_index = false, other_index = false;
  };
  absl::flat_hash_map<const Instruction*, Reached> reached;
  for (const Instruction* root : roots) reached[root].same_index = true;
  const auto& all = fused.instructions();
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    const Instruction& at = **it;
    if (at.opcode() == Opcode::kTuple) continue;
    const Reached from = reached[&at];
    for (const Instruction* operand : at.operands()) {
      const bool keeps = (hlo::IsElementwise(at.opcode()) || at.opcode() == Opcode::kReshape) &&
                         operand->shape().elements() == at.shape().elements();
      Reached& to = reached[operand];
      to.same_index = to.same_index || (keeps && from.same_index);
      to.other_index = to.other_index || from.other_index || (!keeps && from.same_index);
    }
  }
  std::vector<bool> result;
  for (const Instruction* parameter : fused.parameters()) {
    result.push_back(reached[parameter].same_index && !reached[parameter].other_index);
  }
  return result;
}

Pairs FusionPairs(const Instruction& fusion) {
  if (const std::optional<RowForm> form = RowFormOf(fusion)) return RowPairs(fusion, *form);
  const Computation& fused = *fusion.called()[0];
  std::vector<const Instruction*> roots = {fused.root()};
  if (fused.root()->opcode() == Opcode::kTuple) {
    roots.assign(fused.root()->operands().begin(), fused.root()->operands().end());
  }
  for (const Instruction* root : roots) {
    if (root->shape().elements() != roots[0]->shape().elements()) return {};
  }
  const std::vector<bool> same_index = ReadAtSameIndex(fused, roots);
  Pairs pairs;
  int64_t result_leaf = 0;
  for (const Instruction* root : roots) {
    int64_t operand_leaf = 0;
    for (int k = 0; k < fusion.operand_count(); ++k) {
      const Shape& shape = fusion.operand(k)->shape();
      if (same_index[k] && SameBytes(root->shape(), shape)) pairs.emplace_back(result_leaf, operand_leaf);
      operand_leaf += CountLeaves(shape);
    }
    result_leaf += CountLeaves(root->shape());
  }
  return pairs;
}

}  // namespace

std::vector<std::pair<int, int>> MayShareMemory(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kFusion:
      return IsAttention(instruction) ? Pairs{} : FusionPairs(instruction);
    case Opcode::kDynamicUpdateSlice:
      return {{0, 0}};
    case Opcode::kScatter:
    case Opcode::kAllReduce: {
      Pairs pairs;
      for (int i = 0; i < CountLeaves(instruction.shape()); ++i) pairs.emplace_back(i, i);
      return pairs;
    }
    default:
      return hlo::IsElementwise(instruction.opcode()) ? ElementwisePairs(instruction) : Pairs{};
  }
}

}  // namespace xlad::compiler
