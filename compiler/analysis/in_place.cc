#include "compiler/analysis/in_place.h"

#include "absl/container/flat_hash_map.h"
#include "compiler/analysis/hlo_util.h"

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

// The fused parameters that are read at the position of the element being made, and nowhere else.
std::vector<bool> ReadInStep(const Computation& fused, const std::vector<const Instruction*>& roots) {
  struct Reached {
    bool in_step = false, elsewhere = false;
  };
  absl::flat_hash_map<const Instruction*, Reached> reached;
  for (const Instruction* root : roots) reached[root].in_step = true;
  const auto& all = fused.instructions();
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    const Instruction& at = **it;
    if (at.opcode() == Opcode::kTuple) continue;
    const Reached from = reached[&at];
    for (const Instruction* operand : at.operands()) {
      const bool keeps = (hlo::IsElementwise(at.opcode()) || at.opcode() == Opcode::kReshape) &&
                         operand->shape().elements() == at.shape().elements();
      Reached& to = reached[operand];
      to.in_step = to.in_step || (keeps && from.in_step);
      to.elsewhere = to.elsewhere || from.elsewhere || (!keeps && from.in_step);
    }
  }
  std::vector<bool> result;
  for (const Instruction* parameter : fused.parameters()) {
    result.push_back(reached[parameter].in_step && !reached[parameter].elsewhere);
  }
  return result;
}

Pairs FusionPairs(const Instruction& fusion) {
  const Computation& fused = *fusion.called()[0];
  std::vector<const Instruction*> roots = {fused.root()};
  if (fused.root()->opcode() == Opcode::kTuple) {
    roots.assign(fused.root()->operands().begin(), fused.root()->operands().end());
  }
  for (const Instruction* root : roots) {
    if (root->shape().elements() != roots[0]->shape().elements()) return {};
  }
  const std::vector<bool> in_step = ReadInStep(fused, roots);
  Pairs pairs;
  for (int r = 0; r < std::ssize(roots); ++r) {
    for (int k = 0; k < fusion.operand_count(); ++k) {
      if (in_step[k] &&
          SameBytes(roots[r]->shape(), fusion.operand(k)->shape())) {
        pairs.emplace_back(r, k);
      }
    }
  }
  return pairs;
}

}  // namespace

std::vector<std::pair<int, int>> MayShareMemory(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kFusion:
      return FusionPairs(instruction);
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
