// Proves that if a collective is in a loop or branch, all devices of its group execute it. Otherwise, some devices
// would wait forever for devices that took another branch or left the loop earlier.
//
// Needs: canonical collectives, no fusions. Changes nothing. Leaves: the condition of every while and conditional that
// contains collectives is equal on all devices of each group of these collectives. InvalidArgument names the
// instruction, a pair of devices and the collective.
//
// The method is divergence analysis, which compilers for GPUs use to find uniform branches. Instead of "uniform" or
// "divergent", the analysis finds a partition of the devices: each value has one label per device, and devices with
// equal labels are proven to hold equal values. The labels of parameters follow from the boxes of their shards. Values
// that depend only on the partition id and on constants are computed for each device. The result of a collective
// depends on the operands in its group. Every other result has the common refinement of its operands' partitions. For
// example, with 4 devices and an all-reduce over {{0,1},{2,3}}:
//
//   x = f32[] parameter(0)     labels {0,1,2,3}: different on all devices
//   s = f32[] all-reduce(x)    labels {0,0,1,1}: equal within each group
#include "compiler/passes/passes.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "compiler/analysis/collective_spec.h"
#include "compiler/analysis/instruction_facts.h"
#include "compiler/analysis/leaf_values.h"
#include "compiler/analysis/step_computations.h"
#include "hlo/analysis/collectives.h"
#include "hlo/analysis/leaves.h"
#include "hlo/eval/evaluate.h"
#include "hlo/side_effect.h"

namespace xlad::compiler {
namespace {

// One label for each device, numbered by first occurrence. Devices with equal labels hold equal values.
using Labels = std::vector<int>;
using LeafLabels = std::vector<Labels>;  // For each leaf of a value.

// Returns labels that are equal if and only if the keys are equal.
template <typename Key>
Labels Number(const std::vector<Key>& keys) {
  std::map<Key, int> numbers;
  Labels labels;
  for (const Key& key : keys) labels.push_back(numbers.emplace(key, numbers.size()).first->second);
  return labels;
}

// The common refinement: two devices have equal labels if they have equal labels in both arguments.
Labels Refine(const Labels& a, const Labels& b) {
  std::vector<std::pair<int, int>> keys;
  for (size_t d = 0; d < a.size(); ++d) keys.emplace_back(a[d], b[d]);
  return Number(keys);
}

// A value that depends only on the partition id and on constants: one literal if it is equal on all devices, otherwise
// one per device. Empty if the value is not known.
using Literals = std::vector<hlo::Literal>;

// Values are computed only if they have at most this many elements on all devices together. This is enough for offsets,
// masks and their tables.
constexpr int64_t kMaxKnownElements = 1 << 16;

// Whether the evaluator can compute the opcode from its operands only, in time proportional to the size of the result.
bool IsEvaluated(Opcode opcode) {
  switch (opcode) {
    case Opcode::kConstant: case Opcode::kIota: case Opcode::kBroadcast: case Opcode::kReshape: case Opcode::kSlice:
    case Opcode::kDynamicSlice: case Opcode::kConcatenate: case Opcode::kPad: case Opcode::kTranspose:
      return true;
    default:
      return hlo::IsElementwise(opcode);
  }
}

class DivergenceAnalysis {
 public:
  explicit DivergenceAnalysis(const PassContext& context) : context_(context), devices_(context.devices) {}

  absl::Status Run(const Module& module) {
    std::vector<LeafLabels> arguments;
    size_t leaf = 0;
    for (const Instruction* parameter : module.entry()->parameters()) {
      arguments.emplace_back();
      for (int64_t i = CountLeaves(parameter->shape()); i > 0; --i) {
        arguments.back().push_back(leaf < context_.parameter_labels.size() ? Number(context_.parameter_labels[leaf])
                                                                           : Different());
        ++leaf;
      }
    }
    return Walk(*module.entry(), arguments).status();
  }

 private:
  using Known = absl::flat_hash_map<const Instruction*, LeafLabels>;

  Labels Equal() const { return Labels(devices_, 0); }
  Labels Different() const {
    Labels labels(devices_);
    std::iota(labels.begin(), labels.end(), 0);
    return labels;
  }

  absl::StatusOr<LeafLabels> Walk(const Computation& computation, const std::vector<LeafLabels>& arguments) {
    Known known;
    for (const auto& instruction : computation.instructions()) {
      if (instruction->opcode() == Opcode::kParameter) {
        known[instruction.get()] = arguments[instruction->number()];
        continue;
      }
      XLAD_ASSIGN_OR_RETURN(LeafLabels value, Value(*instruction, known));
      known[instruction.get()] = std::move(value);
    }
    return known.at(computation.root());
  }

  absl::StatusOr<LeafLabels> Value(const Instruction& at, const Known& known) {
    switch (at.opcode()) {
      case Opcode::kTuple:
        return LeavesOfTuple(at, known);
      case Opcode::kGetTupleElement:
        return LeavesOfElement(at, known);
      case Opcode::kOptBarrier:
        return known.at(at.operand(0));
      case Opcode::kWhile:
        return Loop(at, known.at(at.operand(0)));
      case Opcode::kConditional:
        return Branches(at, known);
      default:
        break;
    }
    if (hlo::IsCollective(at.opcode())) return Collective(at, known);
    const Literals& literals = OnDevices(at);
    if (!literals.empty()) return LeafLabels{literals.size() == 1 ? Equal() : LabelsOf(literals)};
    const bool differs = at.opcode() == Opcode::kPartitionId || hlo::HasSideEffect(at);
    Labels labels = differs ? Different() : Equal();
    for (const Instruction* operand : at.operands()) {
      for (const Labels& leaf : known.at(operand)) labels = Refine(labels, leaf);
    }
    return LeafLabels(CountLeaves(at.shape()), labels);
  }

  static Labels LabelsOf(const Literals& literals) {
    std::vector<std::vector<std::byte>> keys;
    for (const hlo::Literal& literal : literals) {
      keys.emplace_back(literal.array.bytes().begin(), literal.array.bytes().end());
    }
    return Number(keys);
  }

  // Memoized, because the value does not depend on the arguments of the computation. Operands come before their users.
  const Literals& OnDevices(const Instruction& at) {
    const auto [it, is_new] = literals_.try_emplace(&at);
    if (!is_new) return *it->second;
    it->second = std::make_unique<Literals>();
    Literals& result = *it->second;
    if (at.opcode() == Opcode::kPartitionId) {
      for (uint32_t d = 0; d < devices_; ++d) {
        result.emplace_back(tensor::Array::FromValues<uint32_t>(ElementType::kU32, {}, {d}));
      }
      return result;
    }
    if (!IsEvaluated(at.opcode()) || !at.shape().is_array()) return result;
    int64_t count = 1;
    std::vector<const Literals*> operands;
    for (const Instruction* operand : at.operands()) {
      const auto found = literals_.find(operand);
      if (found == literals_.end() || found->second->empty()) return result;
      operands.push_back(found->second.get());
      count = std::max<int64_t>(count, operands.back()->size());
    }
    if (at.shape().elements() * count > kMaxKnownElements) return result;
    Literals computed;
    for (int64_t d = 0; d < count; ++d) {
      std::vector<const hlo::Literal*> values;
      for (const Literals* operand : operands) values.push_back(&(*operand)[operand->size() == 1 ? 0 : d]);
      absl::StatusOr<hlo::Literal> value = hlo::EvaluateInstruction(at, values);
      if (!value.ok()) return result;
      computed.push_back(*std::move(value));
    }
    result = std::move(computed);
    return result;
  }

  absl::StatusOr<LeafLabels> Loop(const Instruction& loop, LeafLabels carried) {
    // The search starts at the fixed point of the last visit, because labels are only refined while an outer loop is
    // iterated. A new search at each visit would take time exponential in the depth of nested loops.
    LeafLabels& known = carried_.try_emplace(&loop, carried).first->second;
    for (size_t i = 0; i < carried.size(); ++i) carried[i] = Refine(carried[i], known[i]);
    const std::vector<bool> invariant = InvariantLeaves(*loop.called()[1]);
    Labels predicate;
    // A fixed point: each round but the last refines the partition of a leaf, so the number of rounds is at most
    // devices times leaves.
    for (;;) {
      XLAD_ASSIGN_OR_RETURN(LeafLabels condition, Walk(*loop.called()[0], {carried}));
      predicate = condition[0];
      XLAD_ASSIGN_OR_RETURN(LeafLabels next, Walk(*loop.called()[1], {carried}));
      LeafLabels refined;
      // If devices may run different numbers of iterations, all values that the body changes may differ too.
      for (size_t i = 0; i < carried.size(); ++i) {
        const bool changes = next[i] != carried[i] || !invariant[i];
        refined.push_back(changes ? Refine(Refine(carried[i], next[i]), predicate) : carried[i]);
      }
      if (refined == carried) break;
      carried = std::move(refined);
    }
    carried_[&loop] = carried;
    XLAD_RETURN_IF_ERROR(Require(loop, *loop.called()[1], predicate));
    XLAD_RETURN_IF_ERROR(Require(loop, *loop.called()[0], predicate));
    return carried;
  }

  // For each leaf of the carried value, whether the body returns the tuple element that contains the leaf unchanged.
  static std::vector<bool> InvariantLeaves(const Computation& body) {
    const Instruction* root = body.root();
    std::vector<bool> invariant;
    if (root->opcode() != Opcode::kTuple) return std::vector<bool>(CountLeaves(root->shape()), false);
    for (int64_t i = 0; i < root->operand_count(); ++i) {
      const Instruction* next = root->operand(i);
      const bool is_same = next->opcode() == Opcode::kGetTupleElement && next->number() == i &&
                           next->operand(0) == body.parameter(0);
      invariant.insert(invariant.end(), CountLeaves(next->shape()), is_same);
    }
    return invariant;
  }

  absl::StatusOr<LeafLabels> Branches(const Instruction& conditional, const Known& known) {
    const Labels selector = known.at(conditional.operand(0))[0];
    LeafLabels result(CountLeaves(conditional.shape()), selector);
    for (size_t b = 0; b < conditional.called().size(); ++b) {
      XLAD_ASSIGN_OR_RETURN(
          LeafLabels branch, Walk(*conditional.called()[b], {known.at(conditional.operand(b + 1))}));
      for (size_t i = 0; i < result.size(); ++i) result[i] = Refine(result[i], branch[i]);
      XLAD_RETURN_IF_ERROR(Require(conditional, *conditional.called()[b], selector));
    }
    return result;
  }

  absl::StatusOr<LeafLabels> Collective(const Instruction& at, const Known& known) {
    LeafLabels result;
    for (int64_t k = 0; k < at.operand_count(); ++k) {
      XLAD_ASSIGN_OR_RETURN(Labels labels, Exchange(at, known.at(at.operand(k))[0]));
      result.push_back(std::move(labels));
    }
    result.resize(CountLeaves(at.shape()), result.empty() ? Different() : result[0]);
    return result;
  }

  absl::StatusOr<Labels> Exchange(const Instruction& at, const Labels& operand) {
    std::vector<std::vector<int>> keys(devices_);  // The operand labels that a device's result depends on.
    if (at.opcode() == Opcode::kCollectivePermute) {
      XLAD_RETURN_IF_ERROR(CheckPairs(at, context_.devices));
      for (const auto& [source, target] : at.attributes().source_target_pairs) {
        keys[target] = {operand[source]};
      }
      return Number(keys);
    }
    const bool by_rank = at.opcode() == Opcode::kReduceScatter || at.opcode() == Opcode::kAllToAll;
    XLAD_ASSIGN_OR_RETURN(auto groups, DeviceGroups(at, context_.devices));
    for (const std::vector<int64_t>& group : groups) {
      std::vector<int> key;
      for (int64_t device : group) key.push_back(operand[device]);
      for (size_t rank = 0; rank < group.size(); ++rank) {
        std::vector<int>& own = keys[group[rank]];
        own = key;
        if (by_rank) own.push_back(rank);
      }
    }
    return Number(keys);
  }

  // Returns an error unless `labels` are equal within the groups, or within the pairs of a collective-permute, of every
  // collective in `computation` and in its loops and branches.
  absl::Status Require(const Instruction& flow, const Computation& computation, const Labels& labels) {
    for (const auto& inner : computation.instructions()) {
      if (hlo::IsCollective(inner->opcode())) XLAD_RETURN_IF_ERROR(RequireFor(flow, *inner, labels));
      if (inner->opcode() != Opcode::kWhile && inner->opcode() != Opcode::kConditional) continue;
      for (const Computation* callee : inner->called()) XLAD_RETURN_IF_ERROR(Require(flow, *callee, labels));
    }
    return absl::OkStatus();
  }

  absl::Status RequireFor(const Instruction& flow, const Instruction& collective, const Labels& labels) {
    auto require = [&](int64_t a, int64_t b) {
      if (labels[a] == labels[b]) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(
          Describe(flow), ": its condition may differ between devices ", a, " and ", b, ", both of which take part in ",
          Describe(collective),
          " inside it; expected a condition computed from constants, replicated parameters and reductions over "
          "all of these devices"));
    };
    if (collective.opcode() == Opcode::kCollectivePermute) {
      XLAD_RETURN_IF_ERROR(CheckPairs(collective, context_.devices));
      for (const auto& [source, target] : collective.attributes().source_target_pairs) {
        XLAD_RETURN_IF_ERROR(require(source, target));
      }
      return absl::OkStatus();
    }
    XLAD_ASSIGN_OR_RETURN(auto groups, DeviceGroups(collective, context_.devices));
    for (const std::vector<int64_t>& group : groups) {
      for (int64_t device : group) XLAD_RETURN_IF_ERROR(require(group[0], device));
    }
    return absl::OkStatus();
  }

  const PassContext& context_;
  const size_t devices_;
  absl::flat_hash_map<const Instruction*, std::unique_ptr<Literals>> literals_;
  // The labels of the carried values of each loop, from its last visit.
  absl::flat_hash_map<const Instruction*, LeafLabels> carried_;
};

}  // namespace

absl::Status CheckUniformConditions(hlo::Module& module, PassContext& context) {
  if (context.devices == 1) return absl::OkStatus();
  bool needed = false;
  for (const Computation* computation : StepComputations(module)) {
    needed = needed || (computation != module.entry() && hlo::ContainsCollective(*computation));
  }
  return needed ? DivergenceAnalysis(context).Run(module) : absl::OkStatus();
}

}  // namespace xlad::compiler
