// How one op is split: the cheapest of the candidate assignments, then its operands, local form and result.
#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "hlo/attribute_keys.h"
#include "sharding/cost/cost.h"
#include "sharding/model/axes.h"
#include "sharding/partition/partitioner.h"
#include "sharding/rules/linear.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;

// Operand dimension that has factor f, for messages.
std::pair<size_t, size_t> PlaceOf(const OpRule& rule, size_t f) {
  for (size_t leaf = 0; leaf < rule.operands.size(); ++leaf) {
    for (size_t d = 0; d < rule.operands[leaf].size(); ++d) {
      for (int factor : rule.operands[leaf][d]) {
        if (static_cast<size_t>(factor) == f) return {leaf, d};
      }
    }
  }
  return {0, 0};
}

OriginPtr PartialOrigin(const ProgramInProgress& program, const Instruction& instruction, const OpRule& rule,
                        const Assignment& assignment) {
  for (size_t f = 0; f < assignment.size(); ++f) {
    if (rule.factors[f].kind != FactorKind::kReduction || assignment[f].axes.empty()) continue;
    const auto [leaf, d] = PlaceOf(rule, f);
    auto origin = std::make_shared<Origin>();
    origin->kind = Origin::Kind::kPartitioned;
    origin->op = instruction.name();
    origin->what = absl::StrCat(instruction.opcode() == hlo::Opcode::kDot ? "contracting" : "reduced", " dimension ", d,
                                " of operand ", leaf, " is split over ", ToString(program.mesh(), assignment[f].axes),
                                ", so every device has a partial result");
    origin->source = program.source->module->SourceOf(instruction);
    for (const OriginPtr& cause : assignment[f].origins) {
      if (origin->because == nullptr) origin->because = cause;
    }
    return origin;
  }
  return nullptr;
}

// Work that grows with more than the sizes of its operands.
bool IsHeavy(hlo::Opcode opcode) {
  return opcode == hlo::Opcode::kDot || opcode == hlo::Opcode::kConvolution || opcode == hlo::Opcode::kRaggedDot ||
         opcode == hlo::Opcode::kScaledDot;
}

// Points of the op's index space that a device computes.
double LocalWork(const OpRule& rule, const Assignment& assignment) {
  double work = 1;
  for (size_t f = 0; f < assignment.size(); ++f) {
    work *= static_cast<double>(ShardSize(rule.factors[f].size, ShardCount(assignment[f].axes)));
  }
  return work;
}

// The axes that split one operand alone, and not the result as it is wanted: a weight whose inputs lie whole on every
// device of the axis. To compute with parts of it leaves partial results, or parts of the result to be gathered; to
// gather it repeats work that the program's activations do not divide.
AxisList AxesOfOneOperand(const LocalValue& operands, const ValueSharding& wanted) {
  const auto splits = [](const TensorSharding& sharding, const AxisRef& axis) {
    return std::any_of(sharding.dims.begin(), sharding.dims.end(),
                       [&](const DimensionSharding& dim) { return OverlapsAny(axis, dim.axes); });
  };
  AxisList alone;
  for (const LocalArray& operand : operands) {
    for (const DimensionSharding& dim : operand.sharding.dims) {
      for (const AxisRef& axis : dim.axes) {
        const auto others = std::count_if(operands.begin(), operands.end(), [&](const LocalArray& other) {
          return splits(other.sharding, axis);
        });
        if (others == 1 && !splits(wanted[0], axis)) alone.push_back(axis);
      }
    }
  }
  return alone;
}

// Heavy work is never done twice to save bytes: gathering activations to compute a weight's gradient on every device
// would send less than the gradient in places, and scale with nothing. The exception are axes of one operand alone: not
// to use them counts as if they divided the work. Parts of points where sizes do not divide.
double WorkThatCounts(const OpRule& rule, const Assignment& assignment, const AxisList& alone) {
  double work = 1;
  for (size_t f = 0; f < assignment.size(); ++f) {
    work *= static_cast<double>(rule.factors[f].size) / static_cast<double>(ShardCount(assignment[f].axes));
  }
  for (const AxisRef& axis : alone) {
    const bool used = std::any_of(assignment.begin(), assignment.end(),
                                  [&](const FactorAxes& factor) { return OverlapsAny(axis, factor.axes); });
    if (!used) work /= static_cast<double>(axis.size);
  }
  return work;
}

// Compared in this order: heavy work, bytes sent (and heavy work that may be repeated, as bytes), light work.
using Cost = std::tuple<double, double, double>;

bool AllReplicated(const LocalValue& operands, const ValueSharding& wanted) {
  return std::all_of(operands.begin(), operands.end(),
                     [](const LocalArray& operand) { return operand.sharding.IsReplicated(); }) &&
         std::all_of(wanted.begin(), wanted.end(), [](const TensorSharding& s) { return s.IsReplicated(); });
}

}  // namespace

TensorSharding Partitioner::Needed(const Instruction& instruction, const OpRule& rule, const Assignment& assignment,
                                   size_t i) const {
  TensorSharding needed = Project(assignment, rule.operands[i]);
  const auto pending = program_.pending.operands.find(&instruction);
  if (pending == program_.pending.operands.end()) return needed;
  // Where an op is linear, every operand is one array.
  return IsLinearIn(instruction, static_cast<int64_t>(i)) ? Pending(std::move(needed), pending->second) : needed;
}

std::vector<LocalArray> Partitioner::ProjectedResults(const Instruction& instruction, const OpRule& rule,
                                                      const Assignment& assignment) const {
  const std::vector<tensor::Shape> shapes = LeafShapes(instruction.shape());
  AxisList reduced = ReducedAxes(rule, assignment);
  const auto pending = program_.pending.operands.find(&instruction);
  if (pending != program_.pending.operands.end()) {
    reduced.insert(reduced.end(), pending->second.begin(), pending->second.end());
    std::sort(reduced.begin(), reduced.end());
  }
  hlo::Opcode reduction = hlo::Opcode::kAdd;
  for (size_t f = 0; f < assignment.size(); ++f) {
    if (rule.factors[f].kind == FactorKind::kReduction && !assignment[f].axes.empty()) {
      reduction = rule.factors[f].reduction;
    }
  }
  std::vector<LocalArray> results;
  for (size_t i = 0; i < shapes.size(); ++i) {
    LocalArray result;
    result.global = shapes[i];
    result.sharding = Project(assignment, rule.results[i]);
    result.sharding.unreduced = reduced;
    result.sharding.unreduced_reduction = reduction;
    results.push_back(std::move(result));
  }
  return results;
}

// The part of its operand's price that a slice bears: other slices of the operand that are wanted split alike use the
// operand in the same form, and cost nothing once one of them has paid for it (even and odd places of a scan).
double Partitioner::ShareOf(const Instruction& slice) const {
  if (slice.opcode() != hlo::Opcode::kSlice) return 1;
  const DimensionAxes wanted = DimensionAxesOf(Wanted(slice)[0]);
  double all = 0;
  for (const Instruction* user : slice.operand(0)->users()) {
    const bool alike = user->opcode() == hlo::Opcode::kSlice && DimensionAxesOf(Wanted(*user)[0]) == wanted;
    if (alike) all += static_cast<double>(user->shape().elements());
  }
  return all > 0 ? static_cast<double>(slice.shape().elements()) / all : 1;
}

double Partitioner::Price(const Instruction& instruction, const OpRule& rule, const LocalValue& operands,
                          const Assignment& assignment) const {
  double bytes = 0;
  const double share = ShareOf(instruction);
  for (size_t i = 0; i < operands.size(); ++i) {
    bytes += share * emitter_.ReshardBytes(operands[i], Needed(instruction, rule, assignment, i));
  }
  const ValueSharding wanted = Wanted(instruction);
  const std::vector<LocalArray> results = ProjectedResults(instruction, rule, assignment);
  for (size_t i = 0; i < results.size(); ++i) bytes += emitter_.ReshardBytes(results[i], wanted[i]);
  return bytes + HaloBytes(instruction, rule, assignment);
}

// Axes along which an operand is the part of a sum cannot split the op as well.
bool Partitioner::SplitsPending(const Instruction& instruction, const Assignment& assignment) const {
  const auto pending = program_.pending.operands.find(&instruction);
  if (pending == program_.pending.operands.end()) return false;
  return std::any_of(assignment.begin(), assignment.end(), [&](const FactorAxes& factor) {
    return std::any_of(factor.axes.begin(), factor.axes.end(),
                       [&](const AxisRef& axis) { return OverlapsAny(axis, pending->second); });
  });
}

AxisList Partitioner::PartialAxes(const Instruction& instruction) {
  if (hlo::IsElementwise(instruction.opcode()) || instruction.operand_count() < 2) return {};
  const OpRule rule = RuleOf(instruction);
  const bool adds = std::any_of(rule.factors.begin(), rule.factors.end(), [](const Factor& factor) {
    return factor.kind == FactorKind::kReduction && factor.reduction == hlo::Opcode::kAdd;
  });
  if (!adds || rule.results.empty()) return {};
  LocalValue operands;
  for (const Instruction* operand : instruction.operands()) {
    const ValueSharding shardings = Wanted(*operand);
    const std::vector<tensor::Shape> shapes = LeafShapes(operand->shape());
    for (size_t i = 0; i < shapes.size(); ++i) operands.push_back({nullptr, shapes[i], shardings[i], nullptr});
  }
  return ReducedAxes(rule, Choose(instruction, rule, operands));
}

Assignment Partitioner::Choose(const Instruction& instruction, const OpRule& rule, const LocalValue& operands) {
  const ValueSharding wanted = Wanted(instruction);
  Assignment best(rule.factors.size());
  if (AllReplicated(operands, wanted)) return best;
  std::vector<OpTensor> tensors;
  for (size_t i = 0; i < operands.size(); ++i) {
    tensors.push_back({&rule.operands[i], &operands[i].sharding, operands[i].global.dims, operands[i].global.bytes()});
  }
  const std::vector<tensor::Shape> shapes = LeafShapes(instruction.shape());
  for (size_t i = 0; i < wanted.size(); ++i) {
    tensors.push_back({&rule.results[i], &wanted[i], shapes[i].dims, shapes[i].bytes()});
  }
  const bool heavy = IsHeavy(instruction.opcode());
  const std::vector<Assignment> candidates =
      Candidates(rule, tensors, FamilyOf(instruction.opcode()).splittable(instruction, rule), heavy);
  const AxisList alone = heavy ? AxesOfOneOperand(operands, wanted) : AxisList{};
  Cost best_cost{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), 0};
  for (const Assignment& candidate : candidates) {
    if (SplitsPending(instruction, candidate)) continue;
    const double work = LocalWork(rule, candidate);
    const double bytes = candidates.size() == 1 ? 0 : Price(instruction, rule, operands, candidate);
    const Cost cost{heavy ? WorkThatCounts(rule, candidate, alone) : 0,
                    bytes + (alone.empty() ? 0 : 2 * work / kFlopsPerByte), work};
    if (cost < best_cost) {
      best = candidate;
      best_cost = cost;
    }
  }
  return best;
}

// An operand that must be gathered because the op cannot be done on shards of a dimension.
void Partitioner::ReportReplication(const Instruction& instruction, const OpRule& rule, const LocalValue& operands) {
  const std::vector<bool> allowed = FamilyOf(instruction.opcode()).splittable(instruction, rule);
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t d = 0; d < operands[i].sharding.dims.size(); ++d) {
      const AxisList& axes = operands[i].sharding.dims[d].axes;
      const bool blocked = std::any_of(rule.operands[i][d].begin(), rule.operands[i][d].end(), [&](int f) {
        return !allowed[f] && rule.factors[f].size > 1;
      });
      if (axes.empty() || !blocked) continue;
      program_.Warn(instruction, absl::StrCat("gathered over ", ToString(program_.mesh(), axes), ": ",
                                              hlo::ToString(instruction.opcode()), " needs dimension ", d,
                                              " of operand ", i, ", ", operands[i].global.ToString(), ", whole"));
    }
  }
}

// What the slices among a concatenation's operands are of, split as the operands are asked for.
LocalValue Partitioner::Sliced(const Instruction& instruction, const OpRule& rule, const Assignment& assignment) {
  LocalValue sliced;
  for (const Instruction* operand : instruction.operands()) {
    LocalArray from;
    if (IsSliceAlong(*operand, instruction.dimensions()[0])) {
      const TensorSharding to = Needed(instruction, rule, assignment, sliced.size());
      from = emitter_.Reshard(values_.at(operand->operand(0))[0], to,
                              {&instruction, absl::StrCat("what operand ", sliced.size(), " is cut from is needed as ",
                                                          ToString(program_.mesh(), to))});
    }
    sliced.push_back(std::move(from));
  }
  return sliced;
}

absl::Status Partitioner::VisitOp(const Instruction& instruction) {
  const OpRule rule = RuleOf(instruction);
  const bool tuple_constant = instruction.opcode() == hlo::Opcode::kConstant && !instruction.shape().is_array();
  if (rule.results.empty() || tuple_constant) return VisitWhole(instruction);
  LocalValue operands = Operands(instruction);
  const Assignment assignment = Choose(instruction, rule, operands);
  ReportReplication(instruction, rule, operands);
  LocalOp op{&instruction, &rule, &assignment, {}, {}, {}, ProjectedResults(instruction, rule, assignment)};
  if (instruction.opcode() == hlo::Opcode::kReshape) {
    const TensorSharding wanted = Wanted(instruction)[0];
    op.ragged = RaggedDims(instruction, rule, assignment, operands[0].sharding, wanted);
    for (const RaggedDim& dim : op.ragged) op.results[0].sharding.dims[dim.result] = wanted.dims[dim.result];
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    TensorSharding to = Needed(instruction, rule, assignment, i);
    for (const RaggedDim& ragged : op.ragged) to.dims[ragged.operand] = operands[i].sharding.dims[ragged.operand];
    op.operands.push_back(emitter_.Reshard(
        operands[i], to,
        {&instruction, absl::StrCat("operand ", i, " is needed as ", ToString(program_.mesh(), to))}));
  }
  if (instruction.opcode() == hlo::Opcode::kConcatenate) op.sliced = Sliced(instruction, rule, assignment);
  emitter_.builder().set_template(&instruction);
  XLAD_RETURN_IF_ERROR(Annotate(FamilyOf(instruction.opcode()).emit(emitter_, op), instruction.name()));
  OriginPtr partial = PartialOrigin(program_, instruction, rule, assignment);
  for (const LocalArray& operand : operands) {
    if (partial == nullptr) partial = operand.partial;
  }
  const AxisList own = ReducedAxes(rule, assignment);
  for (LocalArray& result : op.results) {
    if (!result.sharding.unreduced.empty()) result.partial = partial;
    // What the check follows to the collective that makes it whole.
    const bool whole = result.sharding.unreduced.empty();  // The family has combined the parts itself.
    if (own.empty() || whole) continue;
    result.local->mutable_frontend_attributes()[hlo::kPartialAxesKey] = ToString(program_.mesh(), own);
  }
  Enter(instruction, std::move(op.results));
  return absl::OkStatus();
}

absl::Status Partitioner::VisitWhole(const Instruction& instruction) {
  LocalValue operands = Operands(instruction);
  std::vector<Instruction*> packed;
  size_t next = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].sharding.IsReplicated()) {
      program_.Warn(instruction, absl::StrCat("replicated whole: ", hlo::ToString(instruction.opcode()),
                                              " has no sharding rule; operand ", i, " is ",
                                              operands[i].global.ToString(), " as ",
                                              ToString(program_.mesh(), operands[i].sharding)));
    }
    operands[i] = emitter_.Reshard(operands[i], TensorSharding::Replicated(operands[i].global.ndim()),
                                   {&instruction, absl::StrCat("operand ", i, " is needed whole")});
  }
  for (const Instruction* operand : instruction.operands()) {
    const size_t count = LeafShapes(operand->shape()).size();
    const auto first = operands.begin() + static_cast<int64_t>(next);
    packed.push_back(Packed(operand->shape(), LocalValue(first, first + static_cast<int64_t>(count))));
    next += count;
  }
  Instruction* local = emitter_.CloneLocal(instruction, instruction.shape(), packed);
  ValueSharding replicated;
  for (const tensor::Shape& leaf : LeafShapes(instruction.shape())) {
    replicated.push_back(TensorSharding::Replicated(leaf.ndim()));
  }
  Enter(instruction, Unpacked(local, instruction.shape(), replicated));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
