// How one op is split: the cheapest of the candidate assignments, then its operands, local form and result.
#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "sharding/partition/partitioner.h"

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

// Work that grows with more than the sizes of its operands is never done twice to save bytes: gathering activations to
// compute a weight's gradient on every device would send less than the gradient in places, and scale with nothing.
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

// Compared in this order: heavy work, bytes sent, light work.
using Cost = std::tuple<double, double, double>;

bool AllReplicated(const LocalValue& operands, const ValueSharding& wanted) {
  return std::all_of(operands.begin(), operands.end(),
                     [](const LocalArray& operand) { return operand.sharding.IsReplicated(); }) &&
         std::all_of(wanted.begin(), wanted.end(), [](const TensorSharding& s) { return s.IsReplicated(); });
}

}  // namespace

std::vector<LocalArray> ProjectedResults(const Instruction& instruction, const OpRule& rule,
                                         const Assignment& assignment) {
  const std::vector<tensor::Shape> shapes = LeafShapes(instruction.shape());
  const AxisList reduced = ReducedAxes(rule, assignment);
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

double Partitioner::Price(const Instruction& instruction, const OpRule& rule, const LocalValue& operands,
                          const Assignment& assignment) const {
  double bytes = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    bytes += emitter_.ReshardBytes(operands[i], Project(assignment, rule.operands[i]));
  }
  const ValueSharding wanted = Wanted(instruction);
  const std::vector<LocalArray> results = ProjectedResults(instruction, rule, assignment);
  for (size_t i = 0; i < results.size(); ++i) bytes += emitter_.ReshardBytes(results[i], wanted[i]);
  return bytes + HaloBytes(instruction, rule, assignment);
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
  const std::vector<Assignment> candidates =
      Candidates(rule, tensors, FamilyOf(instruction.opcode()).splittable(instruction, rule));
  const bool heavy = IsHeavy(instruction.opcode());
  Cost best_cost{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), 0};
  for (const Assignment& candidate : candidates) {
    const double work = LocalWork(rule, candidate);
    const Cost cost{heavy ? work : 0, candidates.size() == 1 ? 0 : Price(instruction, rule, operands, candidate), work};
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
        return !allowed[static_cast<size_t>(f)] && rule.factors[static_cast<size_t>(f)].size > 1;
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
      const TensorSharding to = Project(assignment, rule.operands[sliced.size()]);
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
    TensorSharding to = Project(assignment, rule.operands[i]);
    for (const RaggedDim& ragged : op.ragged) to.dims[ragged.operand] = operands[i].sharding.dims[ragged.operand];
    op.operands.push_back(emitter_.Reshard(
        operands[i], to,
        {&instruction, absl::StrCat("operand ", i, " is needed as ", ToString(program_.mesh(), to))}));
  }
  if (instruction.opcode() == hlo::Opcode::kConcatenate) op.sliced = Sliced(instruction, rule, assignment);
  emitter_.builder().set_template(&instruction);
  XLAD_RETURN_IF_ERROR(Annotate(FamilyOf(instruction.opcode()).emit(emitter_, op), instruction.name()));
  const OriginPtr partial = PartialOrigin(program_, instruction, rule, assignment);
  for (LocalArray& result : op.results) {
    result.partial = partial;
    if (result.sharding.unreduced.empty()) continue;
    // What the check follows to the collective that makes it whole.
    result.local->mutable_frontend_attributes()["xlad.partial"] =
        ToString(program_.mesh(), result.sharding.unreduced);
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
