// Partitions one computation: walks the source's instructions in order and gives each its local form.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "hlo/analysis/leaves.h"
#include "sharding/partition/emitter.h"
#include "sharding/partition/op_family.h"

namespace xlad::sharding {

class Partitioner {
 public:
  Partitioner(ProgramInProgress* program, hlo::Computation* target)
      : program_(*program), emitter_(program, target) {}

  // The local value of the source's root, in the shardings that it was propagated; no root is set yet.
  absl::StatusOr<LocalValue> Run(const hlo::Computation& source);
  // Reshards the leaves and sets the root: an array or (nested) tuple of `shape`'s structure.
  absl::Status Finish(const hlo::Computation& source, LocalValue root, const ValueSharding& wanted);
  // Enters what is left of this computation's values after RemoveDead into the program's trace, where it has one.
  void RecordTrace() const;
  // The axes along which an op's result is the part of a sum, if its operands lie as propagated.
  AxisList PartialAxes(const hlo::Instruction& instruction);

  Emitter& emitter() { return emitter_; }

 private:
  absl::Status Visit(const hlo::Instruction& instruction);
  absl::Status VisitParameter(const hlo::Instruction& instruction);
  absl::Status VisitCopy(const hlo::Instruction& instruction);
  absl::Status VisitTuple(const hlo::Instruction& instruction);
  absl::Status VisitGetTupleElement(const hlo::Instruction& instruction);
  absl::Status VisitBarrier(const hlo::Instruction& instruction);
  absl::Status VisitOp(const hlo::Instruction& instruction);
  // No rule: every operand whole, the instruction as it is, its results sliced.
  absl::Status VisitWhole(const hlo::Instruction& instruction);
  absl::Status VisitManualBorder(const hlo::Instruction& instruction);  // manual.cc
  absl::Status VisitPartitionId(const hlo::Instruction& instruction);   // manual.cc
  absl::Status VisitWhile(const hlo::Instruction& instruction);        // control_flow.cc
  absl::Status VisitConditional(const hlo::Instruction& instruction);  // control_flow.cc
  // A computation of the source partitioned into a new one of the target module. `loop`: where it is a loop's body.
  struct LoopBody;
  absl::StatusOr<hlo::Computation*> PartitionCalled(const hlo::Instruction& caller, const hlo::Computation& source,
                                                    const ValueSharding& result,
                                                    LoopBody* loop = nullptr);

  // What an op that is split so asks of the leaf of operand i: pending where the op is computed on parts of sums.
  TensorSharding Needed(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment,
                        size_t i) const;
  // The results of an op under an assignment: partial sums marked, `local` empty.
  std::vector<LocalArray> ProjectedResults(const hlo::Instruction& instruction, const OpRule& rule,
                                           const Assignment& assignment) const;
  // The chosen way to split an op.
  Assignment Choose(const hlo::Instruction& instruction, const OpRule& rule, const LocalValue& operands);
  double Price(const hlo::Instruction& instruction, const OpRule& rule, const LocalValue& operands,
               const Assignment& assignment) const;
  double ShareOf(const hlo::Instruction& slice) const;
  bool SplitsPending(const hlo::Instruction& instruction, const Assignment& assignment) const;
  LocalValue Sliced(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment);
  void ReportReplication(const hlo::Instruction& instruction, const OpRule& rule, const LocalValue& operands);

  LocalValue Operands(const hlo::Instruction& instruction) const;  // Leaves of all operands, in order.
  ValueSharding Wanted(const hlo::Instruction& instruction) const;
  // The leaves as one instruction of the shape's structure, and back.
  hlo::Instruction* Packed(const hlo::Shape& shape, const LocalValue& leaves);
  LocalValue Unpacked(hlo::Instruction* local, const hlo::Shape& global, const ValueSharding& shardings);
  // Reshards to the propagated shardings and enters the value of an instruction.
  void Enter(const hlo::Instruction& instruction, LocalValue value);

  ProgramInProgress& program_;
  Emitter emitter_;
  bool in_manual_ = false;  // A body or branch inside a manual computation.
  absl::flat_hash_map<const hlo::Instruction*, LocalValue> values_;
  absl::flat_hash_map<const hlo::Instruction*, const hlo::Instruction*> control_;  // While and conditional, local.
};

// Returns true if the instruction belongs to the body of a manual computation (shard_map).
bool IsInManualComputation(const hlo::Instruction& instruction);
// `global` with every leaf's sizes replaced by local ones, in order of leaves.
hlo::Shape LocalStructure(const hlo::Shape& global, const ValueSharding& shardings);

}  // namespace xlad::sharding
