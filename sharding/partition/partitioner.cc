#include "sharding/partition/partitioner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/attribute_keys.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

hlo::Shape Localize(const hlo::Shape& global, const ValueSharding& shardings, size_t* next) {
  if (global.is_array()) {
    const TensorSharding& sharding = shardings[(*next)++];
    return hlo::Shape(global.type(), LocalDims(global.dims(), sharding));
  }
  if (!global.is_tuple()) return global;
  std::vector<hlo::Shape> elements;
  for (const hlo::Shape& element : global.tuple()) elements.push_back(Localize(element, shardings, next));
  return hlo::Shape::Tuple(std::move(elements));
}

bool IsDynamic(const hlo::Shape& shape) {
  if (!shape.extents().empty()) return true;
  return shape.is_tuple() && std::any_of(shape.tuple().begin(), shape.tuple().end(), IsDynamic);
}

}  // namespace

hlo::Shape LocalStructure(const hlo::Shape& global, const ValueSharding& shardings) {
  size_t next = 0;
  return Localize(global, shardings, &next);
}

absl::StatusOr<LocalValue> Partitioner::Run(const hlo::Computation& source) {
  for (const Instruction* instruction : LiveInstructions(source)) {
    emitter_.builder().set_template(instruction);
    XLAD_RETURN_IF_ERROR(Visit(*instruction));
  }
  return values_.at(source.root());
}

absl::Status Partitioner::Finish(const hlo::Computation& source, LocalValue root, const ValueSharding& wanted) {
  for (size_t i = 0; i < root.size(); ++i) {
    root[i] = emitter_.Reshard(root[i], wanted[i], {source.root(), absl::StrCat("result ", i, " of ", source.name(),
                                                                               " is wanted as ",
                                                                               ToString(program_.mesh(), wanted[i]))});
  }
  emitter_.builder().computation()->set_root(Packed(source.root()->shape(), root));
  return absl::OkStatus();
}

void Partitioner::RecordTrace() const {
  if (program_.trace == nullptr) return;
  absl::flat_hash_set<const Instruction*> left;
  for (const auto& instruction : emitter_.builder().computation()->instructions()) left.insert(instruction.get());
  for (const auto& [source, value] : values_) {
    if (!source->shape().is_array() || !left.contains(value[0].local)) continue;
    program_.trace->arrays[source] = {value[0].local, value[0].sharding};
  }
  for (const auto& [source, local] : control_) {
    if (left.contains(local)) program_.trace->control[source] = local;
  }
}

absl::Status Partitioner::Visit(const Instruction& instruction) {
  if (IsDynamic(instruction.shape())) {
    return absl::UnimplementedError(absl::StrCat(instruction.name(), ": found the dynamic shape ",
                                                 instruction.shape().ToString(false),
                                                 ", expected fixed sizes: dynamic sizes cannot be partitioned"));
  }
  switch (instruction.opcode()) {
    case Opcode::kParameter: return VisitParameter(instruction);
    case Opcode::kCopy: return VisitCopy(instruction);
    case Opcode::kTuple: return VisitTuple(instruction);
    case Opcode::kGetTupleElement: return VisitGetTupleElement(instruction);
    case Opcode::kOptBarrier: return VisitBarrier(instruction);
    case Opcode::kWhile: return VisitWhile(instruction);
    case Opcode::kConditional: return VisitConditional(instruction);
    case Opcode::kPartitionId:
      if (in_manual_ || IsInManualComputation(instruction)) return VisitPartitionId(instruction);
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
          program_.mesh().ToString(), "; expected array operations, while and conditional"));
    default: break;
  }
  if (hlo::IsManualBorder(instruction)) return VisitManualBorder(instruction);
  if (hlo::IsCollective(instruction.opcode()) && !in_manual_ && !IsInManualComputation(instruction)) {
    return absl::UnimplementedError(absl::StrCat(instruction.name(), ": a collective of the user's own outside of a "
                                                                     "manual computation cannot be partitioned"));
  }
  return VisitOp(instruction);
}

LocalValue Partitioner::Operands(const Instruction& instruction) const {
  LocalValue operands;
  for (const Instruction* operand : instruction.operands()) {
    const LocalValue& value = values_.at(operand);
    operands.insert(operands.end(), value.begin(), value.end());
  }
  return operands;
}

ValueSharding Partitioner::Wanted(const Instruction& instruction) const {
  const auto found = program_.source->shardings.find(&instruction);
  const std::vector<tensor::Shape> leaves = LeafShapes(instruction.shape());
  ValueSharding wanted = found == program_.source->shardings.end() ? ValueSharding{} : found->second;
  for (size_t i = wanted.size(); i < leaves.size(); ++i) wanted.push_back(TensorSharding::Replicated(leaves[i].ndim()));
  const auto pending = program_.pending.results.find(&instruction);
  if (pending == program_.pending.results.end()) return wanted;
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = Pending(std::move(wanted[i]), pending->second[i]);
  return wanted;
}

Instruction* Partitioner::Packed(const hlo::Shape& shape, const LocalValue& leaves) {
  if (shape.is_array()) return leaves[0].local;
  std::vector<Instruction*> elements;
  size_t next = 0;
  for (const hlo::Shape& element : shape.tuple()) {
    const size_t count = LeafShapes(element).size();
    const auto first = leaves.begin() + static_cast<int64_t>(next);
    elements.push_back(Packed(element, LocalValue(first, first + static_cast<int64_t>(count))));
    next += count;
  }
  return emitter_.builder().Tuple(elements);
}

LocalValue Partitioner::Unpacked(Instruction* local, const hlo::Shape& global, const ValueSharding& shardings) {
  if (global.is_array()) return {LocalArray{local, global.array(), shardings[0], nullptr}};
  LocalValue value;
  size_t next = 0;
  for (size_t i = 0; i < global.tuple().size(); ++i) {
    const hlo::Shape& element = global.tuple()[i];
    const size_t count = LeafShapes(element).size();
    const auto first = shardings.begin() + static_cast<int64_t>(next);
    LocalValue part = Unpacked(emitter_.builder().GetTupleElement(local, i), element,
                               ValueSharding(first, first + static_cast<int64_t>(count)));
    value.insert(value.end(), part.begin(), part.end());
    next += count;
  }
  return value;
}

void Partitioner::Enter(const Instruction& instruction, LocalValue value) {
  const ValueSharding wanted = Wanted(instruction);
  for (size_t i = 0; i < value.size(); ++i) {
    value[i] = emitter_.Reshard(value[i], wanted[i],
                                {&instruction, absl::StrCat("its result is wanted as ",
                                                            ToString(program_.mesh(), wanted[i]))});
  }
  values_[&instruction] = std::move(value);
}

absl::Status Partitioner::VisitParameter(const Instruction& instruction) {
  const ValueSharding shardings = Wanted(instruction);
  Instruction* local = emitter_.builder().Parameter(
      instruction.number(), LocalStructure(instruction.shape(), shardings), instruction.name());
  values_[&instruction] = Unpacked(local, instruction.shape(), shardings);
  return absl::OkStatus();
}

// A constraint of the user's: the value in another sharding.
absl::Status Partitioner::VisitCopy(const Instruction& instruction) {
  LocalValue value = Operands(instruction);
  const ValueSharding wanted = Wanted(instruction);
  for (size_t i = 0; i < value.size(); ++i) {
    value[i] = emitter_.Reshard(
        value[i], wanted[i],
        {&instruction, absl::StrCat("the value is constrained to ", ToString(program_.mesh(), wanted[i]))});
  }
  values_[&instruction] = std::move(value);
  return absl::OkStatus();
}

absl::Status Partitioner::VisitTuple(const Instruction& instruction) {
  Enter(instruction, Operands(instruction));
  return absl::OkStatus();
}

absl::Status Partitioner::VisitGetTupleElement(const Instruction& instruction) {
  const Instruction* tuple = instruction.operand(0);
  size_t first = 0;
  for (int64_t i = 0; i < instruction.number(); ++i) {
    first += LeafShapes(tuple->shape().tuple()[i]).size();
  }
  const size_t count = LeafShapes(instruction.shape()).size();
  const LocalValue& value = values_.at(tuple);
  const auto begin = value.begin() + static_cast<int64_t>(first);
  Enter(instruction, LocalValue(begin, begin + static_cast<int64_t>(count)));
  return absl::OkStatus();
}

absl::Status Partitioner::VisitBarrier(const Instruction& instruction) {
  LocalValue value = Operands(instruction);
  const ValueSharding wanted = Wanted(instruction);
  for (size_t i = 0; i < value.size(); ++i) {
    value[i] = emitter_.Reshard(value[i], wanted[i], {&instruction, "a barrier holds it"});
  }
  Instruction* packed = Packed(instruction.shape(), value);
  Instruction* local = emitter_.CloneLocal(instruction, packed->shape(), {packed});
  LocalValue held = Unpacked(local, instruction.shape(), wanted);
  for (size_t i = 0; i < value.size(); ++i) held[i].partial = value[i].partial;
  values_[&instruction] = std::move(held);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
