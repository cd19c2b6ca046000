#include "sharding/partition/sharding_chooser.h"

#include <algorithm>
#include <limits>

#include "sharding/cost/cost.h"
#include "sharding/model/axes.h"
#include "sharding/partition/local_array.h"
#include "sharding/partition/reshard_plan.h"
#include "sharding/rules/linear.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// Whether the work of the op grows faster than the sizes of its operands.
bool IsHeavy(Opcode opcode) {
  return opcode == Opcode::kDot || opcode == Opcode::kConvolution || opcode == Opcode::kRaggedDot ||
         opcode == Opcode::kScaledDot;
}

// The number of points of the op's index space that a device computes, padding included.
double LocalWork(const OpRule& rule, const Assignment& assignment) {
  double work = 1;
  for (size_t f = 0; f < assignment.size(); ++f) {
    work *= ShardSize(rule.factors[f].size, ShardCount(assignment[f].axes));
  }
  return work;
}

// The axes that split exactly one operand and do not split the required result. Such an operand is typically a weight
// that is sharded to save memory (FSDP), while the activations are replicated along the axis. The op has two choices.
// It can compute with the shards, and its result is then partial or must be gathered. Or it can gather the weight
// first, which repeats work on every device along the axis.
AxisList AxesOfOneOperand(const std::vector<OperandArray>& operands, const ValueSharding& wanted) {
  AxisList alone;
  for (const OperandArray& operand : operands) {
    for (const DimensionSharding& dim : operand.sharding.dims) {
      for (const AxisRef& axis : dim.axes) {
        const auto users = std::count_if(operands.begin(), operands.end(), [&](const OperandArray& other) {
          return SplitsDims(other.sharding, axis);
        });
        if (users == 1 && !SplitsDims(wanted[0], axis)) alone.push_back(axis);
      }
    }
  }
  return alone;
}

// The heavy work of a device. Because it has precedence in AssignmentCost, heavy work is not repeated to save bytes.
// For example, gathering the activations and computing a weight's gradient on every device may send less than reducing
// the gradient. The work of a device would then not shrink with the number of devices. The axes of `alone`
// (AxesOfOneOperand) are exempt: if an assignment does not use such an axis, its work is divided by the size of the
// axis anyway. Fractions of points are used so that uneven splits have no disadvantage.
double HeavyWork(const OpRule& rule, const Assignment& assignment, const AxisList& alone) {
  double work = 1;
  for (size_t f = 0; f < assignment.size(); ++f) {
    work *= static_cast<double>(rule.factors[f].size) / static_cast<double>(ShardCount(assignment[f].axes));
  }
  for (const AxisRef& axis : alone) {
    if (!SplitsFactors(assignment, axis)) work /= axis.size;
  }
  return work;
}

bool AllReplicated(const std::vector<OperandArray>& operands, const ValueSharding& wanted) {
  return std::all_of(operands.begin(), operands.end(),
                     [](const OperandArray& operand) { return operand.sharding.IsReplicated(); }) &&
         std::all_of(wanted.begin(), wanted.end(), [](const TensorSharding& s) { return s.IsReplicated(); });
}

}  // namespace

const AxisList* ShardingChooser::DeferredAxes(const Instruction& instruction) const {
  const auto found = deferred_.computed_on_partials.find(&instruction);
  return found == deferred_.computed_on_partials.end() ? nullptr : &found->second;
}

ValueSharding ShardingChooser::Wanted(const Instruction& instruction) const {
  const auto found = source_.shardings.find(&instruction);
  const std::vector<tensor::Shape> leaves = LeafShapes(instruction.shape());
  ValueSharding wanted = found == source_.shardings.end() ? ValueSharding{} : found->second;
  for (size_t i = wanted.size(); i < leaves.size(); ++i) wanted.push_back(TensorSharding::Replicated(leaves[i].ndim()));
  const auto deferred = deferred_.unreduced_results.find(&instruction);
  if (deferred == deferred_.unreduced_results.end()) return wanted;
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = WithUnreduced(std::move(wanted[i]), deferred->second[i]);
  return wanted;
}

TensorSharding ShardingChooser::NeededOperand(const Instruction& instruction, const OpRule& rule,
                                              const Assignment& assignment, size_t i) const {
  TensorSharding needed = Project(assignment, rule.operands[i]);
  const AxisList* deferred = DeferredAxes(instruction);
  // Every operand of an op that computes on partial sums is one array, so leaf i is operand i.
  const bool on_partials = deferred != nullptr && IsLinearIn(instruction, i);
  return on_partials ? WithUnreduced(std::move(needed), *deferred) : needed;
}

ValueSharding ShardingChooser::ResultShardings(const Instruction& instruction, const OpRule& rule,
                                               const Assignment& assignment) const {
  AxisList reduced = ReducedAxes(rule, assignment);
  Opcode reduction = Opcode::kAdd;
  for (size_t f = 0; f < assignment.size(); ++f) {
    if (rule.factors[f].kind == FactorKind::kReduction && !assignment[f].axes.empty()) {
      reduction = rule.factors[f].reduction;
    }
  }
  if (const AxisList* deferred = DeferredAxes(instruction)) {
    // Partial sums of partial sums are summed in one reduction over all axes.
    reduction = Opcode::kAdd;
    reduced.insert(reduced.end(), deferred->begin(), deferred->end());
    std::sort(reduced.begin(), reduced.end());
  }
  ValueSharding shardings;
  for (const TensorFactors& result : rule.results) {
    TensorSharding sharding = Project(assignment, result);
    sharding.unreduced = reduced;
    sharding.unreduced_reduction = reduction;
    shardings.push_back(std::move(sharding));
  }
  return shardings;
}

// Slices of one operand that need equal shardings use the same resharded operand, so they share the cost of resharding
// it in proportion to their sizes. The slices of the even and odd positions in an associative scan are an example.
double ShardingChooser::ShareOfOperandBytes(const Instruction& instruction) const {
  if (instruction.opcode() != Opcode::kSlice) return 1;
  const DimensionAxes wanted = DimensionAxesOf(Wanted(instruction)[0]);
  double all = 0;
  for (const Instruction* user : instruction.operand(0)->users()) {
    const bool alike = user->opcode() == Opcode::kSlice && DimensionAxesOf(Wanted(*user)[0]) == wanted;
    if (alike) all += user->shape().elements();
  }
  return all > 0 ? static_cast<double>(instruction.shape().elements()) / all : 1;
}

double ShardingChooser::CommunicationBytes(const Instruction& instruction, const OpRule& rule,
                                           const Assignment& assignment, OperandReshardBytes reshard_bytes) const {
  double bytes = 0;
  const double share = ShareOfOperandBytes(instruction);
  for (size_t i = 0; i < rule.operands.size(); ++i) {
    bytes += share * reshard_bytes(i, NeededOperand(instruction, rule, assignment, i));
  }
  const ValueSharding wanted = Wanted(instruction);
  const ValueSharding results = ResultShardings(instruction, rule, assignment);
  const std::vector<tensor::Shape> shapes = LeafShapes(instruction.shape());
  for (size_t i = 0; i < results.size(); ++i) {
    bytes += PlanReshard(source_.mesh, shapes[i], results[i], wanted[i]).bytes;
  }
  return bytes + HaloBytes(families_(instruction.opcode()), instruction, rule, assignment);
}

// Whether the assignment splits the op over axes along which its operands are partial sums, which is not allowed.
bool ShardingChooser::SplitsDeferredAxes(const Instruction& instruction, const Assignment& assignment) const {
  const AxisList* deferred = DeferredAxes(instruction);
  return deferred != nullptr && std::any_of(deferred->begin(), deferred->end(), [&](const AxisRef& axis) {
    return SplitsFactors(assignment, axis);
  });
}

AxisList ShardingChooser::PartialSumAxes(const Instruction& instruction) const {
  if (hlo::IsElementwise(instruction.opcode()) || instruction.operand_count() < 2) return {};
  const OpRule rule = RuleOf(instruction);
  const bool adds = std::any_of(rule.factors.begin(), rule.factors.end(), [](const Factor& factor) {
    return factor.kind == FactorKind::kReduction && factor.reduction == Opcode::kAdd;
  });
  if (!adds || rule.results.empty()) return {};
  std::vector<OperandArray> operands;
  for (const Instruction* operand : instruction.operands()) {
    const ValueSharding shardings = Wanted(*operand);
    const std::vector<tensor::Shape> shapes = LeafShapes(operand->shape());
    for (size_t i = 0; i < shapes.size(); ++i) operands.push_back({shapes[i], shardings[i]});
  }
  const auto reshard_bytes = [&](size_t i, const TensorSharding& to) {
    return PlanReshard(source_.mesh, operands[i].shape, operands[i].sharding, to).bytes;
  };
  return ReducedAxes(rule, Choose(instruction, rule, operands, reshard_bytes).assignment);
}

ChosenAssignment ShardingChooser::Choose(const Instruction& instruction, const OpRule& rule,
                                         const std::vector<OperandArray>& operands,
                                         OperandReshardBytes reshard_bytes) const {
  const ValueSharding wanted = Wanted(instruction);
  if (AllReplicated(operands, wanted)) return {Assignment(rule.factors.size()), {}};
  std::vector<OpTensor> tensors;
  for (size_t i = 0; i < operands.size(); ++i) {
    tensors.push_back({&rule.operands[i], &operands[i].sharding, operands[i].shape.bytes()});
  }
  const std::vector<tensor::Shape> shapes = LeafShapes(instruction.shape());
  for (size_t i = 0; i < wanted.size(); ++i) tensors.push_back({&rule.results[i], &wanted[i], shapes[i].bytes()});
  const bool heavy = IsHeavy(instruction.opcode());
  const std::vector<Assignment> candidates =
      Candidates(rule, tensors, families_(instruction.opcode()).splittable(instruction, rule), heavy);
  const AxisList alone = heavy ? AxesOfOneOperand(operands, wanted) : AxisList{};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ChosenAssignment best{Assignment(rule.factors.size()), {kInfinity, kInfinity, 0}};
  for (const Assignment& candidate : candidates) {
    if (SplitsDeferredAxes(instruction, candidate)) continue;
    const double work = LocalWork(rule, candidate);
    const double bytes =
        candidates.size() == 1 ? 0 : CommunicationBytes(instruction, rule, candidate, reshard_bytes);
    // Heavy work that may be repeated counts as the number of bytes that a device can send in the same time.
    const AssignmentCost cost{heavy ? HeavyWork(rule, candidate, alone) : 0,
                              bytes + (alone.empty() ? 0 : 2 * work / kFlopsPerByte), work};
    if (cost < best.cost) best = {candidate, cost};
  }
  return best;
}

}  // namespace xlad::sharding
