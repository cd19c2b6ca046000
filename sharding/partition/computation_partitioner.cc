#include "sharding/partition/computation_partitioner.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "hlo/attribute_keys.h"
#include "sharding/model/axes.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

bool IsDynamic(const hlo::Shape& shape) {
  if (!shape.extents().empty()) return true;
  return shape.is_tuple() && std::any_of(shape.tuple().begin(), shape.tuple().end(), IsDynamic);
}

// The first operand leaf that has factor f, and the dimension of this leaf that has f, for messages.
std::pair<size_t, size_t> OperandDimOf(const OpRule& rule, size_t f) {
  for (size_t leaf = 0; leaf < rule.operands.size(); ++leaf) {
    for (size_t d = 0; d < rule.operands[leaf].size(); ++d) {
      const DimensionFactors& factors = rule.operands[leaf][d];
      if (Contains(factors, f)) return {leaf, d};
    }
  }
  return {0, 0};
}

// Why the op makes a partial result, or null if it does not make one.
OriginPtr PartialOrigin(const ShardedModule& source, const Instruction& instruction, const OpRule& rule,
                        const Assignment& assignment) {
  for (size_t f = 0; f < assignment.size(); ++f) {
    if (rule.factors[f].kind != FactorKind::kReduction || assignment[f].axes.empty()) continue;
    const auto [leaf, d] = OperandDimOf(rule, f);
    auto origin = std::make_shared<Origin>();
    origin->kind = Origin::Kind::kPartitioned;
    origin->op = instruction.name();
    origin->what = absl::StrCat(instruction.opcode() == Opcode::kDot ? "contracting" : "reduced", " dimension ", d,
                                " of operand ", leaf, " is split over ", ToString(source.mesh, assignment[f].axes),
                                ", so every device has a partial result");
    origin->source = source.module->SourceOf(instruction);
    for (const OriginPtr& cause : assignment[f].origins) {
      if (origin->because == nullptr) origin->because = cause;
    }
    return origin;
  }
  return nullptr;
}

// Marks a result that is partial along `axes`, for the proof that every partial result is reduced exactly once.
void MarkPartial(const Mesh& mesh, const AxisList& axes, const TensorSharding& sharding, Instruction* local) {
  if (axes.empty() || sharding.unreduced.empty()) return;  // The op family may combine the parts itself.
  hlo::StringMap& attributes = local->mutable_frontend_attributes();
  attributes[hlo::kPartialAxesKey] = ToString(mesh, axes);
  if (sharding.unreduced_reduction == Opcode::kAdd) return;
  attributes[hlo::kPartialReductionKey] = std::string(hlo::ToString(sharding.unreduced_reduction));
}

}  // namespace

absl::StatusOr<LocalValue> ComputationPartitioner::Run(const hlo::Computation& source) {
  for (const Instruction* instruction : LiveInstructions(source)) {
    local_.builder().set_template(instruction);
    XLAD_RETURN_IF_ERROR(Visit(*instruction));
  }
  return values_.at(source.root());
}

void ComputationPartitioner::Finish(const hlo::Computation& source, LocalValue root, const ValueSharding& wanted) {
  for (size_t i = 0; i < root.size(); ++i) {
    root[i] = reshards_.Reshard(root[i], wanted[i],
                                {source.root(), absl::StrCat("result ", i, " of ", source.name(), " is needed as ",
                                                             ToString(context_.mesh(), wanted[i]))});
  }
  local_.computation()->set_root(Packed(source.root()->shape(), root));
}

void ComputationPartitioner::RecordSourceMap() const {
  SourceMap* map = context_.source_map();
  if (map == nullptr) return;
  absl::flat_hash_set<const Instruction*> alive;
  for (const auto& instruction : local_.computation()->instructions()) alive.insert(instruction.get());
  for (const auto& [source, value] : values_) {
    if (!source->shape().is_array() || !alive.contains(value[0].local)) continue;
    map->arrays[source] = {value[0].local, value[0].sharding};
  }
  for (const auto& [source, local] : control_) {
    if (alive.contains(local)) map->control[source] = local;
  }
}

absl::Status ComputationPartitioner::Visit(const Instruction& instruction) {
  if (IsDynamic(instruction.shape())) {
    return absl::UnimplementedError(absl::StrCat(instruction.name(), ": found the dynamic shape ",
                                                 instruction.shape().ToString(false),
                                                 ", expected fixed sizes: dynamic sizes cannot be partitioned"));
  }
  const bool manual = in_manual_ || IsInManualComputation(instruction);
  switch (instruction.opcode()) {
    case Opcode::kParameter: return VisitParameter(instruction);
    case Opcode::kCopy: return VisitCopy(instruction);
    case Opcode::kAfterAll: values_[&instruction] = {}; return absl::OkStatus();
    case Opcode::kAddDependency: SetValue(instruction, values_.at(instruction.operand(0))); return absl::OkStatus();
    case Opcode::kTuple: SetValue(instruction, Operands(instruction)); return absl::OkStatus();
    case Opcode::kGetTupleElement: return VisitGetTupleElement(instruction);
    case Opcode::kOptBarrier: return VisitBarrier(instruction);
    case Opcode::kWhile: return VisitWhile(instruction);
    case Opcode::kConditional: return VisitConditional(instruction);
    case Opcode::kPartitionId:
      if (manual) return VisitPartitionId(instruction);
      [[fallthrough]];
    case Opcode::kReplicaId:
    case Opcode::kCall:
    case Opcode::kFusion:
    case Opcode::kInfeed:
    case Opcode::kOutfeed:
    case Opcode::kSend:
    case Opcode::kRecv:
    case Opcode::kRng:
      return absl::UnimplementedError(absl::StrCat(
          instruction.name(), ": ", hlo::ToString(instruction.opcode()), " cannot be partitioned over the mesh ",
          context_.mesh().ToString(), "; expected array operations, while and conditional"));
    default: break;
  }
  if (hlo::IsManualBorder(instruction)) return VisitManualBorder(instruction);
  if (hlo::IsCollective(instruction.opcode()) && !manual) {
    return absl::UnimplementedError(
        absl::StrCat(instruction.name(), ": found the collective ", hlo::ToString(instruction.opcode()),
                     " outside of a manual computation (jax.shard_map), expected it inside of one: partitioning adds "
                     "the collectives that the shardings need"));
  }
  return VisitOp(instruction);
}

LocalValue ComputationPartitioner::Operands(const Instruction& instruction) const {
  LocalValue operands;
  for (const Instruction* operand : instruction.operands()) {
    const LocalValue& value = values_.at(operand);
    operands.insert(operands.end(), value.begin(), value.end());
  }
  return operands;
}

LocalValue ComputationPartitioner::ReshardAll(const Instruction& instruction, LocalValue value,
                                              const ValueSharding& wanted, absl::string_view what) {
  for (size_t i = 0; i < value.size(); ++i) {
    value[i] = reshards_.Reshard(value[i], wanted[i],
                                 {&instruction, absl::StrCat(what, ToString(context_.mesh(), wanted[i]))});
  }
  return value;
}

Instruction* ComputationPartitioner::Packed(const hlo::Shape& shape, absl::Span<const LocalArray> leaves) {
  if (shape.is_array()) return leaves[0].local;
  if (shape.kind() == hlo::Shape::Kind::kToken) {
    // A token has no leaves. It orders side effects, and ops with side effects are not partitioned.
    return local_.computation()->Add(std::make_unique<Instruction>(Opcode::kAfterAll, shape));
  }
  std::vector<Instruction*> elements;
  size_t next = 0;
  for (const hlo::Shape& element : shape.tuple()) {
    const size_t count = LeafShapes(element).size();
    elements.push_back(Packed(element, leaves.subspan(next, count)));
    next += count;
  }
  return local_.builder().Tuple(elements);
}

LocalValue ComputationPartitioner::Unpacked(Instruction* local, const hlo::Shape& global,
                                            absl::Span<const TensorSharding> shardings) {
  if (global.is_array()) return {LocalArray{local, global.array(), shardings[0], nullptr}};
  LocalValue value;
  size_t next = 0;
  for (size_t i = 0; i < global.tuple().size(); ++i) {
    const hlo::Shape& element = global.tuple()[i];
    const size_t count = LeafShapes(element).size();
    const LocalValue part =
        Unpacked(local_.builder().GetTupleElement(local, i), element, shardings.subspan(next, count));
    value.insert(value.end(), part.begin(), part.end());
    next += count;
  }
  return value;
}

void ComputationPartitioner::SetValue(const Instruction& instruction, LocalValue value) {
  values_[&instruction] =
      ReshardAll(instruction, std::move(value), chooser_.Wanted(instruction), "its result is needed as ");
}

absl::Status ComputationPartitioner::VisitParameter(const Instruction& instruction) {
  const ValueSharding shardings = chooser_.Wanted(instruction);
  Instruction* local = local_.builder().Parameter(
      instruction.number(), LocalStructure(instruction.shape(), shardings), instruction.name());
  values_[&instruction] = Unpacked(local, instruction.shape(), shardings);
  return absl::OkStatus();
}

// A copy is a sharding constraint of the user.
absl::Status ComputationPartitioner::VisitCopy(const Instruction& instruction) {
  values_[&instruction] = ReshardAll(instruction, Operands(instruction), chooser_.Wanted(instruction),
                                     "the value is constrained to ");
  return absl::OkStatus();
}

absl::Status ComputationPartitioner::VisitGetTupleElement(const Instruction& instruction) {
  const Instruction* tuple = instruction.operand(0);
  const auto leaves = absl::MakeSpan(values_.at(tuple))
                          .subspan(FirstArrayLeaf(tuple->shape(), instruction.number()),
                                   LeafShapes(instruction.shape()).size());
  SetValue(instruction, LocalValue(leaves.begin(), leaves.end()));
  return absl::OkStatus();
}

absl::Status ComputationPartitioner::VisitBarrier(const Instruction& instruction) {
  const ValueSharding wanted = chooser_.Wanted(instruction);
  const LocalValue value = ReshardAll(instruction, Operands(instruction), wanted, "a barrier takes it as ");
  Instruction* packed = Packed(instruction.shape(), value);
  Instruction* local = local_.CloneLocal(instruction, packed->shape(), {packed});
  LocalValue held = Unpacked(local, instruction.shape(), wanted);
  for (size_t i = 0; i < value.size(); ++i) held[i].partial = value[i].partial;
  values_[&instruction] = std::move(held);
  return absl::OkStatus();
}

// Warns about operands that are all-gathered because the op cannot run on shards of a dimension.
void ComputationPartitioner::WarnOfReplication(const LocalOp& op, const LocalValue& operands) {
  const Instruction& instruction = *op.source;
  const OpRule& rule = *op.rule;
  std::vector<bool> allowed;  // Computed when it is first needed, because LawsOf is slow.
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t d = 0; d < operands[i].sharding.dims.size(); ++d) {
      const AxisList& axes = operands[i].sharding.dims[d].axes;
      const auto is_used = [&](const AxisRef& axis) {  // The op may have moved the axis to another dimension.
        return SplitsFactors(*op.assignment, axis);
      };
      if (std::all_of(axes.begin(), axes.end(), is_used)) continue;
      if (allowed.empty()) allowed = context_.families()(instruction.opcode()).splittable(instruction, rule);
      const bool blocked = std::any_of(rule.operands[i][d].begin(), rule.operands[i][d].end(),
                                       [&](int f) { return !allowed[f] && rule.factors[f].size > 1; });
      if (!blocked) continue;
      context_.Warn(instruction, absl::StrCat("gathered over ", ToString(context_.mesh(), axes), ": ",
                                              hlo::ToString(instruction.opcode()), " needs dimension ", d,
                                              " of operand ", i, ", ", operands[i].global.ToString(), ", unsplit"));
    }
  }
}

// One entry per operand of a concatenation. If the operand is a slice along the dimension of the concatenation, the
// entry is the sliced array with the sharding that the operand must get. Otherwise it is null.
LocalValue ComputationPartitioner::SlicedOperands(const Instruction& concatenate, const OpRule& rule,
                                                  const Assignment& assignment) {
  LocalValue sliced(concatenate.operand_count());
  for (size_t i = 0; i < sliced.size(); ++i) {
    const Instruction* operand = concatenate.operand(i);
    if (!IsSliceAlong(*operand, concatenate.dimensions()[0])) continue;
    const TensorSharding to = chooser_.NeededOperand(concatenate, rule, assignment, i);
    sliced[i] = reshards_.Reshard(
        values_.at(operand->operand(0))[0], to,
        {&concatenate,
         absl::StrCat("the array of which operand ", i, " is a slice is needed as ", ToString(context_.mesh(), to))});
  }
  return sliced;
}

LocalOp ComputationPartitioner::PrepareOp(const Instruction& instruction, const OpRule& rule,
                                          const Assignment& assignment, const LocalValue& operands) {
  LocalOp op;
  op.source = &instruction;
  op.rule = &rule;
  op.assignment = &assignment;
  const std::vector<tensor::Shape> shapes = LeafShapes(instruction.shape());
  const ValueSharding results = chooser_.ResultShardings(instruction, rule, assignment);
  for (size_t i = 0; i < shapes.size(); ++i) op.results.push_back({nullptr, shapes[i], results[i], nullptr});
  if (const auto ragged = context_.families()(instruction.opcode()).ragged; ragged != nullptr) {
    const TensorSharding wanted = chooser_.Wanted(instruction)[0];
    op.ragged = ragged(instruction, rule, assignment, operands[0].sharding, wanted);
    for (const RaggedDim& dim : op.ragged) op.results[0].sharding.dims[dim.result] = wanted.dims[dim.result];
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    TensorSharding to = chooser_.NeededOperand(instruction, rule, assignment, i);
    for (const RaggedDim& ragged : op.ragged) to.dims[ragged.operand] = operands[i].sharding.dims[ragged.operand];
    op.operands.push_back(reshards_.Reshard(
        operands[i], to,
        {&instruction, absl::StrCat("operand ", i, " is needed as ", ToString(context_.mesh(), to))}));
  }
  if (instruction.opcode() == Opcode::kConcatenate) op.sliced = SlicedOperands(instruction, rule, assignment);
  return op;
}

absl::Status ComputationPartitioner::VisitOp(const Instruction& instruction) {
  const OpRule rule = RuleOf(instruction);
  const bool tuple_constant = instruction.opcode() == Opcode::kConstant && !instruction.shape().is_array();
  if (rule.results.empty() || tuple_constant) return VisitReplicated(instruction);
  const LocalValue operands = Operands(instruction);
  std::vector<OperandArray> arrays;
  for (const LocalArray& operand : operands) arrays.push_back({operand.global, operand.sharding});
  const Assignment assignment =
      chooser_.Choose(instruction, rule, arrays, [&](size_t i, const TensorSharding& to) {
        return reshards_.ReshardBytes(operands[i], to);
      }).assignment;
  LocalOp op = PrepareOp(instruction, rule, assignment, operands);
  WarnOfReplication(op, operands);
  local_.builder().set_template(&instruction);
  XLAD_RETURN_IF_ERROR(Annotate(context_.families()(instruction.opcode()).emit(local_, op), instruction.name()));
  OriginPtr partial = PartialOrigin(context_.source(), instruction, rule, assignment);
  for (const LocalArray& operand : operands) {
    if (partial == nullptr) partial = operand.partial;
  }
  const AxisList own = ReducedAxes(rule, assignment);
  for (LocalArray& result : op.results) {
    if (!result.sharding.unreduced.empty()) result.partial = partial;
    MarkPartial(context_.mesh(), own, result.sharding, result.local);
  }
  SetValue(instruction, std::move(op.results));
  return absl::OkStatus();
}

absl::Status ComputationPartitioner::VisitReplicated(const Instruction& instruction) {
  LocalValue operands = Operands(instruction);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].sharding.IsReplicated()) {
      context_.Warn(instruction, absl::StrCat("replicated: ", hlo::ToString(instruction.opcode()),
                                              " has no sharding rule; operand ", i, " is ",
                                              operands[i].global.ToString(), " as ",
                                              ToString(context_.mesh(), operands[i].sharding)));
    }
    operands[i] = reshards_.Reshard(operands[i], TensorSharding::Replicated(operands[i].global.ndim()),
                                    {&instruction, absl::StrCat("operand ", i, " is needed replicated")});
  }
  std::vector<Instruction*> packed;
  size_t next = 0;
  for (const Instruction* operand : instruction.operands()) {
    const size_t count = LeafShapes(operand->shape()).size();
    packed.push_back(Packed(operand->shape(), absl::MakeSpan(operands).subspan(next, count)));
    next += count;
  }
  Instruction* local = local_.CloneLocal(instruction, instruction.shape(), packed);
  ValueSharding replicated;
  for (const tensor::Shape& leaf : LeafShapes(instruction.shape())) {
    replicated.push_back(TensorSharding::Replicated(leaf.ndim()));
  }
  SetValue(instruction, Unpacked(local, instruction.shape(), replicated));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
