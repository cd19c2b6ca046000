// Emits reshards: the instructions and collectives that take an array from one sharding to another.
#pragma once

#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sharding/partition/local_builder.h"
#include "sharding/partition/reshard_plan.h"

namespace xlad::sharding {

class LoopInvariants;

// Reshards the arrays of one computation. Every step is emitted once per array, so two users that need an array in the
// same sharding share the collectives.
class ReshardEmitter {
 public:
  // `local` must outlive the emitter.
  explicit ReshardEmitter(LocalBuilder* local) : local_(*local), builder_(local->builder()) {}

  // Must be called for the body of a loop if reshards of loop-invariant arrays are hoisted out of it. `loop` may be
  // null.
  void set_loop(LoopInvariants* loop) { loop_ = loop; }

  // `array` with the sharding `to`. An axis that is unreduced in `to` but not in `array` makes the result a partial
  // sum: the array itself on the first device along the axis, and zeros on the others.
  LocalArray Reshard(const LocalArray& array, const TensorSharding& to, const ReshardCause& cause);
  // The bytes that each device would send for Reshard. Steps that were already emitted send nothing, and an array whose
  // elements all equal one scalar is not sent (see MarkNonUniform). Hoisting out of loops is not considered.
  double ReshardBytes(const LocalArray& array, const TensorSharding& to) const;

  // Declares that the scalar that `x` repeats may differ between devices, as it may in a manual computation. Without
  // this, an array whose elements all equal one scalar is resharded without communication, because every device holds
  // the scalar.
  void MarkNonUniform(const hlo::Instruction* x);

 private:
  struct StepKey {
    const hlo::Instruction* from = nullptr;
    ReshardStep::Kind kind;
    int64_t dim = -1, from_dim = -1;
    hlo::Opcode reduction;
    Dims global;  // Needed because a slice can have the same local instruction as its operand, but other global sizes.
    AxisList axes;
    DimensionAxes before, after;
    friend bool operator==(const StepKey&, const StepKey&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const StepKey& key) {
      return H::combine(std::move(h), key.from, key.kind, key.dim, key.from_dim, key.reduction, key.global, key.axes,
                        key.before, key.after);
    }
  };
  // The result of a step, and its collective, which is null if the step sends nothing.
  struct EmittedStep {
    hlo::Instruction* result = nullptr;
    hlo::Instruction* collective = nullptr;
  };
  static StepKey KeyOf(const LocalArray& array, const hlo::Instruction* from, const ReshardStep& step);

  // Whether all elements equal one scalar that is the same on every device.
  bool IsUniform(const LocalArray& array) const;
  hlo::Instruction* EmitUniform(const LocalArray& array, const TensorSharding& to);
  hlo::Instruction* EmitAsPartial(hlo::Instruction* x, const AxisList& axes);
  EmittedStep EmitStep(const LocalArray& array, const ReshardStep& step);
  EmittedStep EmitReduction(const LocalArray& array, const ReshardStep& step);
  EmittedStep EmitAllGather(const LocalArray& array, const ReshardStep& step);
  EmittedStep EmitAllToAll(const LocalArray& array, const ReshardStep& step);
  EmittedStep EmitPermute(const LocalArray& array, const ReshardStep& step);
  hlo::Instruction* EmitSlice(const LocalArray& array, const ReshardStep& step);
  // Pads dimension step.dim to a multiple of the shards of step.after.
  hlo::Instruction* PadForSplit(const LocalArray& array, const ReshardStep& step);
  // Removes the padding of a dimension that is no longer split.
  hlo::Instruction* CutPadding(hlo::Instruction* x, const LocalArray& array, int64_t dim);

  LocalBuilder& local_;
  hlo::Builder& builder_;
  LoopInvariants* loop_ = nullptr;
  absl::flat_hash_map<StepKey, hlo::Instruction*> steps_;
  std::map<std::pair<hlo::Instruction*, AxisList>, hlo::Instruction*> partials_;
  absl::flat_hash_set<const hlo::Instruction*> non_uniform_;
};

}  // namespace xlad::sharding
