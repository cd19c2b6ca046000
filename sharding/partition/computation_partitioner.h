// Partitions one computation: visits the instructions of the source in order and emits the local form of each.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "sharding/partition/op_family.h"
#include "sharding/partition/reshard_emitter.h"
#include "sharding/partition/sharding_chooser.h"

namespace xlad::sharding {

// A visitor: one Visit function per kind of instruction. Each function reshards the local values of the operands to the
// shardings that its instruction needs, emits the local instructions, and reshards the result to its propagated
// sharding.
class ComputationPartitioner {
 public:
  // Emits into `target`, an empty computation of the context's module. `in_manual` says whether the computation is
  // called from inside a manual computation.
  ComputationPartitioner(PartitionContext* context, hlo::Computation* target, bool in_manual = false)
      : context_(*context), chooser_(context->source(), context->deferred(), context->families()),
        local_(context, target), reshards_(&local_), in_manual_(in_manual) {}

  // Returns the local value of the source's root with its propagated shardings. Does not set the target's root.
  absl::StatusOr<LocalValue> Run(const hlo::Computation& source);
  // Reshards the leaves to `wanted` and sets the target's root to them, packed as the source's root is.
  void Finish(const hlo::Computation& source, LocalValue root, const ValueSharding& wanted);
  // If the context has a source map, adds to it the values that are still in the target after RemoveDead.
  void RecordSourceMap() const;

 private:
  // State of partitioning a loop body; see control_flow.cc.
  struct LoopBody;

  absl::Status Visit(const hlo::Instruction& instruction);
  absl::Status VisitParameter(const hlo::Instruction& instruction);
  absl::Status VisitCopy(const hlo::Instruction& instruction);
  absl::Status VisitGetTupleElement(const hlo::Instruction& instruction);
  absl::Status VisitBarrier(const hlo::Instruction& instruction);
  absl::Status VisitOp(const hlo::Instruction& instruction);
  // Emits an op without a sharding rule, or a constant tuple; it runs on replicated operands.
  absl::Status VisitReplicated(const hlo::Instruction& instruction);
  absl::Status VisitManualBorder(const hlo::Instruction& instruction);  // manual_computations.cc
  absl::Status VisitPartitionId(const hlo::Instruction& instruction);   // manual_computations.cc
  absl::Status VisitWhile(const hlo::Instruction& instruction);        // control_flow.cc
  absl::Status VisitConditional(const hlo::Instruction& instruction);  // control_flow.cc
  // Partitions a computation that `caller` calls, and reshards its root to `result`. `loop` is null if the computation
  // is not the body of a loop.
  absl::StatusOr<hlo::Computation*> PartitionCalled(const hlo::Instruction& caller, const hlo::Computation& source,
                                                    const ValueSharding& result, LoopBody* loop);

  // Returns the op, with operands resharded to the shardings that the assignment needs and results without
  // instructions.
  LocalOp PrepareOp(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment,
                    const LocalValue& operands);
  // LocalOp::sliced, resharded to the shardings that the assignment needs.
  LocalValue SlicedOperands(const hlo::Instruction& concatenate, const OpRule& rule, const Assignment& assignment);
  // Warns about operands that are all-gathered because the op cannot run on shards. `operands` are not resharded yet.
  void WarnOfReplication(const LocalOp& op, const LocalValue& operands);

  // The leaves of all operands, in order.
  LocalValue Operands(const hlo::Instruction& instruction) const;
  // Reshards every leaf to `wanted`. `what` begins the reason in messages: "its result is needed as ".
  LocalValue ReshardAll(const hlo::Instruction& instruction, LocalValue value, const ValueSharding& wanted,
                        absl::string_view what);
  // Packed returns one instruction with the structure of `shape` and the given leaves. Unpacked returns the leaves of
  // such an instruction.
  hlo::Instruction* Packed(const hlo::Shape& shape, absl::Span<const LocalArray> leaves);
  LocalValue Unpacked(hlo::Instruction* local, const hlo::Shape& global, absl::Span<const TensorSharding> shardings);
  // Reshards a result to the propagated shardings and stores it as the instruction's value.
  void SetValue(const hlo::Instruction& instruction, LocalValue value);

  PartitionContext& context_;
  const ShardingChooser chooser_;
  LocalBuilder local_;
  ReshardEmitter reshards_;
  const bool in_manual_;
  absl::flat_hash_map<const hlo::Instruction*, LocalValue> values_;
  // The local instructions of loops and conditionals.
  absl::flat_hash_map<const hlo::Instruction*, const hlo::Instruction*> control_;
};

// Whether the instruction is inside a manual computation (jax.shard_map).
bool IsInManualComputation(const hlo::Instruction& instruction);

}  // namespace xlad::sharding
