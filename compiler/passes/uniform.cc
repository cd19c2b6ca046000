#include "compiler/passes/uniform.h"

#include <algorithm>
#include <map>

#include "compiler/analysis/collective_spec.h"
#include "compiler/analysis/hlo_util.h"
#include "hlo/eval/evaluate.h"

namespace xlad::compiler {
namespace {

// A label a device, numbered by first occurrence: equal labels, equal values.
using Labels = std::vector<int>;
using Leaf = std::vector<Labels>;  // By leaf of a value.

template <typename Key>
Labels Number(const std::vector<Key>& keys) {
  std::map<Key, int> numbers;
  Labels labels;
  for (const Key& key : keys) labels.push_back(numbers.emplace(key, static_cast<int>(numbers.size())).first->second);
  return labels;
}

Labels Refine(const Labels& a, const Labels& b) {
  std::vector<std::pair<int, int>> keys;
  for (size_t d = 0; d < a.size(); ++d) keys.emplace_back(a[d], b[d]);
  return Number(keys);
}

// A value as it is on every device, where it is made from the device's number and constants alone: one literal where
// all are equal, one a device where not, none where it is not known.
using Literals = std::vector<hlo::Literal>;

// Elements of all devices together that are worth computing: offsets, masks and their tables.
constexpr int64_t kMaxKnownElements = 1 << 16;

bool IsPlain(Opcode opcode) {
  switch (opcode) {
    case Opcode::kConstant: case Opcode::kIota: case Opcode::kBroadcast: case Opcode::kReshape: case Opcode::kSlice:
    case Opcode::kDynamicSlice: case Opcode::kConcatenate: case Opcode::kPad: case Opcode::kTranspose:
      return true;
    default:
      return hlo::IsElementwise(opcode);
  }
}

class Analysis {
 public:
  explicit Analysis(const PassContext& context) : context_(context), devices_(static_cast<size_t>(context.devices)) {}

  absl::Status Run(const Module& module) {
    std::vector<Leaf> arguments;
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
  using Known = absl::flat_hash_map<const Instruction*, Leaf>;

  Labels Equal() const { return Labels(devices_, 0); }
  Labels Different() const {
    Labels labels;
    for (size_t d = 0; d < devices_; ++d) labels.push_back(static_cast<int>(d));
    return labels;
  }

  absl::StatusOr<Leaf> Walk(const Computation& computation, const std::vector<Leaf>& arguments) {
    Known known;
    for (const auto& instruction : computation.instructions()) {
      if (instruction->opcode() == Opcode::kParameter) {
        known[instruction.get()] = arguments[instruction->number()];
        continue;
      }
      XLAD_ASSIGN_OR_RETURN(Leaf value, Value(*instruction, known));
      known[instruction.get()] = std::move(value);
    }
    return known.at(computation.root());
  }

  absl::StatusOr<Leaf> Value(const Instruction& at, const Known& known) {
    switch (at.opcode()) {
      case Opcode::kTuple: {
        Leaf all;
        for (const Instruction* operand : at.operands()) {
          const Leaf& leaves = known.at(operand);
          all.insert(all.end(), leaves.begin(), leaves.end());
        }
        return all;
      }
      case Opcode::kGetTupleElement: {
        const Leaf& all = known.at(at.operand(0));
        auto first = all.begin() + FirstLeaf(at.operand(0)->shape(), at.number());
        return Leaf(first, first + CountLeaves(at.shape()));
      }
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
    if (!literals.empty()) return Leaf{literals.size() == 1 ? Equal() : LabelsOf(literals)};
    const bool differs = at.opcode() == Opcode::kPartitionId || HasSideEffect(at);
    Labels labels = differs ? Different() : Equal();
    for (const Instruction* operand : at.operands()) {
      for (const Labels& leaf : known.at(operand)) labels = Refine(labels, leaf);
    }
    return Leaf(static_cast<size_t>(CountLeaves(at.shape())), labels);
  }

  static Labels LabelsOf(const Literals& literals) {
    std::vector<std::vector<std::byte>> keys;
    for (const hlo::Literal& literal : literals) {
      keys.emplace_back(literal.array.bytes().begin(), literal.array.bytes().end());
    }
    return Number(keys);
  }

  // Remembered: what a computation is called with does not change it. Operands come before their users.
  const Literals& OnDevices(const Instruction& at) {
    const auto [it, is_new] = literals_.try_emplace(&at);
    if (!is_new) return *it->second;
    it->second = std::make_unique<Literals>();
    Literals& result = *it->second;
    if (at.opcode() == Opcode::kPartitionId) {
      for (size_t d = 0; d < devices_; ++d) {
        result.emplace_back(
            tensor::Array::FromValues<uint32_t>(ElementType::kU32, {}, {static_cast<uint32_t>(d)}));
      }
      return result;
    }
    if (!IsPlain(at.opcode()) || !at.shape().is_array()) return result;
    size_t count = 1;
    std::vector<const Literals*> operands;
    for (const Instruction* operand : at.operands()) {
      const auto found = literals_.find(operand);
      if (found == literals_.end() || found->second->empty()) return result;
      operands.push_back(found->second.get());
      count = std::max(count, operands.back()->size());
    }
    if (at.shape().elements() * static_cast<int64_t>(count) > kMaxKnownElements) return result;
    Literals computed;
    for (size_t d = 0; d < count; ++d) {
      std::vector<const hlo::Literal*> values;
      for (const Literals* operand : operands) values.push_back(&(*operand)[operand->size() == 1 ? 0 : d]);
      absl::StatusOr<hlo::Literal> value = hlo::EvaluateInstruction(at, values);
      if (!value.ok()) return result;
      computed.push_back(*std::move(value));
    }
    result = std::move(computed);
    return result;
  }

  absl::StatusOr<Leaf> Loop(const Instruction& loop, Leaf carried) {
    Labels predicate;
    // Each round can only tell more devices apart, so this ends.
    for (;;) {
      XLAD_ASSIGN_OR_RETURN(Leaf condition, Walk(*loop.called()[0], {carried}));
      predicate = condition[0];
      XLAD_ASSIGN_OR_RETURN(Leaf next, Walk(*loop.called()[1], {carried}));
      Leaf refined;
      // Where the rounds may differ, so may everything that changes.
      for (size_t i = 0; i < carried.size(); ++i) {
        const bool changes = next[i] != carried[i] || !IsHandedOn(*loop.called()[1], static_cast<int64_t>(i));
        refined.push_back(changes ? Refine(Refine(carried[i], next[i]), predicate) : carried[i]);
      }
      if (refined == carried) break;
      carried = std::move(refined);
    }
    XLAD_RETURN_IF_ERROR(Require(loop, *loop.called()[1], predicate));
    XLAD_RETURN_IF_ERROR(Require(loop, *loop.called()[0], predicate));
    return carried;
  }

  static bool IsHandedOn(const Computation& body, int64_t index) {
    const Instruction* root = body.root();
    if (root->opcode() != Opcode::kTuple || index >= root->operand_count()) return false;
    const Instruction* next = root->operand(index);
    return next->opcode() == Opcode::kGetTupleElement && next->number() == index &&
           next->operand(0) == body.parameter(0);
  }

  absl::StatusOr<Leaf> Branches(const Instruction& conditional, const Known& known) {
    const Labels selector = known.at(conditional.operand(0))[0];
    Leaf result(static_cast<size_t>(CountLeaves(conditional.shape())), selector);
    for (size_t b = 0; b < conditional.called().size(); ++b) {
      XLAD_ASSIGN_OR_RETURN(
          Leaf branch, Walk(*conditional.called()[b], {known.at(conditional.operand(b + 1))}));
      for (size_t i = 0; i < result.size(); ++i) result[i] = Refine(result[i], branch[i]);
      XLAD_RETURN_IF_ERROR(Require(conditional, *conditional.called()[b], selector));
    }
    return result;
  }

  absl::StatusOr<Leaf> Collective(const Instruction& at, const Known& known) {
    Leaf result;
    for (int64_t k = 0; k < at.operand_count(); ++k) {
      XLAD_ASSIGN_OR_RETURN(Labels labels, Exchange(at, known.at(at.operand(k))[0]));
      result.push_back(std::move(labels));
    }
    result.resize(CountLeaves(at.shape()), result.empty() ? Different() : result[0]);
    return result;
  }

  absl::StatusOr<Labels> Exchange(const Instruction& at, const Labels& operand) {
    std::vector<std::vector<int>> keys(devices_);  // What a device's result is made from.
    if (at.opcode() == Opcode::kCollectivePermute) {
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
        if (by_rank) own.push_back(static_cast<int>(rank));
      }
    }
    return Number(keys);
  }

  // Every collective in `computation` and below has groups within which `labels` are equal.
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
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(flow), ": its condition may differ between devices ", a, " and ", b,
                       ", which meet inside it in ", Describe(collective),
                       "; expected a condition made from constants, replicated parameters and reductions over "
                       "all of these devices"));
    };
    if (collective.opcode() == Opcode::kCollectivePermute) {
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
};

}  // namespace

absl::Status CheckUniformConditions(hlo::Module& module, PassContext& context) {
  if (context.devices == 1) return absl::OkStatus();
  bool needed = false;
  for (const Computation* computation : StepComputations(module)) {
    needed = needed || (computation != module.entry() && ContainsCollective(*computation));
  }
  return needed ? Analysis(context).Run(module) : absl::OkStatus();
}

}  // namespace xlad::compiler
