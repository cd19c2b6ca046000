// While and conditional: their computations are partitioned with the shardings that the carried values have.
#include "absl/strings/str_cat.h"
#include "hlo/attribute_keys.h"
#include "sharding/partition/loop_values.h"
#include "sharding/partition/partitioner.h"

namespace xlad::sharding {

using hlo::Instruction;

struct Partitioner::LoopBody {
  hlo::Computation* condition = nullptr;  // Partitioned.
  LoopValues values;
  std::vector<OriginPtr> partial;         // Why a carried value is pending, by leaf.
  std::vector<Instruction*> before;       // What the loop carries beside its own.
};

absl::StatusOr<hlo::Computation*> Partitioner::PartitionCalled(const Instruction& caller,
                                                               const hlo::Computation& source,
                                                               const ValueSharding& result, LoopBody* loop) {
  hlo::Computation* target = program_.module->Add(std::make_unique<hlo::Computation>(source.name()));
  Partitioner partitioner(&program_, target);
  partitioner.in_manual_ = in_manual_ || IsInManualComputation(caller);
  if (loop != nullptr) partitioner.emitter_.set_loop(&loop->values);
  XLAD_ASSIGN_OR_RETURN(LocalValue root, partitioner.Run(source));
  for (const LocalArray& leaf : root) {
    if (loop != nullptr) loop->partial.push_back(leaf.partial);
  }
  XLAD_RETURN_IF_ERROR(partitioner.Finish(source, std::move(root), result));
  target->RemoveDead();
  if (loop != nullptr) loop->before = loop->values.Close(loop->condition, target);
  partitioner.RecordTrace();
  return target;
}

namespace {

// An instruction like `source` that calls partitioned computations.
Instruction* AddCalling(Emitter& emitter, const Instruction& source, hlo::Shape shape,
                        std::vector<hlo::Computation*> called, absl::Span<Instruction* const> operands) {
  std::unique_ptr<Instruction> clone = source.CloneWithoutOperands();
  clone->mutable_shape() = std::move(shape);
  clone->mutable_called() = std::move(called);
  clone->set_sharding(nullptr);
  hlo::EraseShardingAttributes(clone.get());
  clone->set_name(source.name());
  return emitter.builder().computation()->Add(std::move(clone), operands);
}

}  // namespace

// The carried values have one sharding before, in and after the loop.
absl::Status Partitioner::VisitWhile(const Instruction& instruction) {
  const ValueSharding carried = Wanted(instruction);
  const Instruction* parameter = instruction.called()[1]->parameter(0);
  if (Wanted(*parameter) != carried || Wanted(*instruction.called()[0]->parameter(0)) != carried) {
    return absl::InternalError(
        absl::StrCat(instruction.name(), ": the loop's parameters have other shardings than it"));
  }
  LocalValue init = Operands(instruction);
  for (size_t i = 0; i < init.size(); ++i) {
    init[i] = emitter_.Reshard(init[i], carried[i],
                               {&instruction, absl::StrCat("the loop carries value ", i, " as ",
                                                           ToString(program_.mesh(), carried[i]))});
  }
  XLAD_ASSIGN_OR_RETURN(hlo::Computation * condition,
                        PartitionCalled(instruction, *instruction.called()[0], {TensorSharding::Replicated(0)}));
  LoopBody loop{condition, LoopValues(instruction, &emitter_, init), {}, {}};
  XLAD_ASSIGN_OR_RETURN(hlo::Computation * body,
                        PartitionCalled(instruction, *instruction.called()[1], carried, &loop));
  emitter_.builder().set_template(&instruction);
  Instruction* packed = Packed(instruction.shape(), init);
  hlo::Shape shape = LocalStructure(instruction.shape(), carried);
  if (!loop.before.empty()) {
    std::vector<Instruction*> elements(packed->operands().begin(), packed->operands().end());
    elements.insert(elements.end(), loop.before.begin(), loop.before.end());
    for (const Instruction* value : loop.before) shape.tuple().push_back(value->shape());
    packed = emitter_.builder().Tuple(elements);
  }
  Instruction* local = AddCalling(emitter_, instruction, std::move(shape), {condition, body}, {packed});
  control_[&instruction] = local;
  LocalValue result = Unpacked(local, instruction.shape(), carried);
  for (size_t i = 0; i < result.size(); ++i) {
    if (!carried[i].unreduced.empty()) result[i].partial = loop.partial[i];
  }
  values_[&instruction] = std::move(result);
  return absl::OkStatus();
}

absl::Status Partitioner::VisitConditional(const Instruction& instruction) {
  const ValueSharding results = Wanted(instruction);
  std::vector<Instruction*> operands;
  std::vector<hlo::Computation*> called;
  for (int64_t i = 0; i < instruction.operand_count(); ++i) {
    LocalValue value = values_.at(instruction.operand(i));
    const ValueSharding wanted = i == 0 ? ValueSharding{TensorSharding::Replicated(0)}
                                        : Wanted(*instruction.called()[i - 1]->parameter(0));
    for (size_t k = 0; k < value.size(); ++k) {
      value[k] = emitter_.Reshard(value[k], wanted[k],
                                  {&instruction, absl::StrCat("operand ", i, " is needed as ",
                                                              ToString(program_.mesh(), wanted[k]))});
    }
    operands.push_back(Packed(instruction.operand(i)->shape(), value));
  }
  for (const hlo::Computation* branch : instruction.called()) {
    XLAD_ASSIGN_OR_RETURN(hlo::Computation * target, PartitionCalled(instruction, *branch, results));
    called.push_back(target);
  }
  emitter_.builder().set_template(&instruction);
  Instruction* local =
      AddCalling(emitter_, instruction, LocalStructure(instruction.shape(), results), called, operands);
  control_[&instruction] = local;
  values_[&instruction] = Unpacked(local, instruction.shape(), results);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
