// While loops and conditionals: their computations are partitioned with the shardings of the values that they carry.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sharding/partition/computation_partitioner.h"
#include "sharding/partition/loop_invariants.h"

namespace xlad::sharding {

using hlo::Instruction;

// The inputs and outputs of PartitionCalled that only the body of a loop has.
struct ComputationPartitioner::LoopBody {
  hlo::Computation* condition = nullptr;  // The partitioned condition.
  LoopInvariants invariants;
  std::vector<OriginPtr> partial;              // For each carried leaf: why it is partial, or null if it is not.
  std::vector<Instruction*> invariant_values;  // Values that the loop carries in addition to those of the source.
};

absl::StatusOr<hlo::Computation*> ComputationPartitioner::PartitionCalled(const Instruction& caller,
                                                                          const hlo::Computation& source,
                                                                          const ValueSharding& result,
                                                                          LoopBody* loop) {
  hlo::Computation* target = context_.module()->Add(std::make_unique<hlo::Computation>(source.name()));
  ComputationPartitioner partitioner(&context_, target, in_manual_ || IsInManualComputation(caller));
  if (loop != nullptr) partitioner.reshards_.set_loop(&loop->invariants);
  XLAD_ASSIGN_OR_RETURN(LocalValue root, partitioner.Run(source));
  for (const LocalArray& leaf : root) {
    if (loop != nullptr) loop->partial.push_back(leaf.partial);
  }
  partitioner.Finish(source, std::move(root), result);
  target->RemoveDead();
  if (loop != nullptr) loop->invariant_values = loop->invariants.AddToLoop(loop->condition, target);
  partitioner.RecordSourceMap();
  return target;
}

// The carried values have the same shardings before, in and after the loop.
absl::Status ComputationPartitioner::VisitWhile(const Instruction& instruction) {
  const ValueSharding carried = chooser_.Wanted(instruction);
  const hlo::Computation &condition_source = *instruction.called()[0], &body_source = *instruction.called()[1];
  const auto text = [&](const ValueSharding& value) {
    return absl::StrJoin(value, ", ", [&](std::string* out, const TensorSharding& sharding) {
      absl::StrAppend(out, ToString(context_.mesh(), sharding));
    });
  };
  for (const hlo::Computation* called : {&body_source, &condition_source}) {
    const ValueSharding parameter = chooser_.Wanted(*called->parameter(0));
    if (parameter == carried) continue;
    return absl::InternalError(absl::StrCat(instruction.name(), ": found shardings ", text(parameter),
                                            " of the parameter of ", called->name(), ", expected ", text(carried),
                                            ", those of the loop"));
  }
  LocalValue init = Operands(instruction);
  for (size_t i = 0; i < init.size(); ++i) {
    init[i] = reshards_.Reshard(init[i], carried[i],
                                {&instruction, absl::StrCat("the loop carries value ", i, " as ",
                                                            ToString(context_.mesh(), carried[i]))});
  }
  XLAD_ASSIGN_OR_RETURN(hlo::Computation * condition,
                        PartitionCalled(instruction, condition_source, {TensorSharding::Replicated(0)}, nullptr));
  LoopBody loop{condition, LoopInvariants(instruction, &reshards_, &local_, init), {}, {}};
  XLAD_ASSIGN_OR_RETURN(hlo::Computation * body, PartitionCalled(instruction, body_source, carried, &loop));
  local_.builder().set_template(&instruction);
  Instruction* packed = Packed(instruction.shape(), init);
  hlo::Shape shape = LocalStructure(instruction.shape(), carried);
  if (!loop.invariant_values.empty()) {
    std::vector<Instruction*> elements(packed->operands().begin(), packed->operands().end());
    elements.insert(elements.end(), loop.invariant_values.begin(), loop.invariant_values.end());
    for (const Instruction* value : loop.invariant_values) shape.tuple().push_back(value->shape());
    packed = local_.builder().Tuple(elements);
  }
  Instruction* local = local_.CloneCalling(instruction, std::move(shape), {condition, body}, {packed});
  control_[&instruction] = local;
  LocalValue result = Unpacked(local, instruction.shape(), carried);
  for (size_t i = 0; i < result.size(); ++i) {
    if (!carried[i].unreduced.empty()) result[i].partial = loop.partial[i];
  }
  values_[&instruction] = std::move(result);
  return absl::OkStatus();
}

absl::Status ComputationPartitioner::VisitConditional(const Instruction& instruction) {
  const ValueSharding results = chooser_.Wanted(instruction);
  std::vector<Instruction*> operands;
  std::vector<hlo::Computation*> called;
  for (int64_t i = 0; i < instruction.operand_count(); ++i) {
    const ValueSharding wanted = i == 0 ? ValueSharding{TensorSharding::Replicated(0)}
                                        : chooser_.Wanted(*instruction.called()[i - 1]->parameter(0));
    const LocalValue value = ReshardAll(instruction, values_.at(instruction.operand(i)), wanted,
                                        absl::StrCat("operand ", i, " is needed as "));
    operands.push_back(Packed(instruction.operand(i)->shape(), value));
  }
  for (const hlo::Computation* branch : instruction.called()) {
    XLAD_ASSIGN_OR_RETURN(hlo::Computation * target, PartitionCalled(instruction, *branch, results, nullptr));
    called.push_back(target);
  }
  local_.builder().set_template(&instruction);
  Instruction* local =
      local_.CloneCalling(instruction, LocalStructure(instruction.shape(), results), called, operands);
  control_[&instruction] = local;
  values_[&instruction] = Unpacked(local, instruction.shape(), results);
  return absl::OkStatus();
}

}  // namespace xlad::sharding
