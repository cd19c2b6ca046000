// Appends local instructions to one computation of the partitioned module: resharding with its collectives, masks over
// padding, positions of this device in the mesh.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "hlo/build/builder.h"
#include "sharding/partition/partition.h"
#include "sharding/partition/pending.h"
#include "sharding/partition/reshard_plan.h"

namespace xlad::sharding {

// One array on its way through partitioning: what each device holds and how the devices' parts make the whole.
// Local sizes are ceil(size / shards); what lies behind the global size is padding and may hold anything.
struct LocalArray {
  hlo::Instruction* local = nullptr;
  tensor::Shape global;
  TensorSharding sharding;
  OriginPtr partial;  // Why it is unreduced, where it is.
};
using LocalValue = std::vector<LocalArray>;  // An entry for each leaf array.

// Which instruction of the user's program asks for a reshard, and what for.
struct Why {
  const hlo::Instruction* op = nullptr;
  std::string what;  // "operand 1 is needed as [{}, {"tp"}]"
};

// What all computations of a partitioned module share.
struct ProgramInProgress {
  const ShardedModule* source = nullptr;
  hlo::Module* module = nullptr;
  int64_t next_collective_id = 1;
  std::vector<CollectiveInfo> collectives;
  std::vector<std::string> warnings;
  PendingSums pending;
  Trace* trace = nullptr;  // May be null.
  absl::flat_hash_map<const hlo::Computation*, hlo::Computation*> cloned;  // Reducers, comparators.

  const Mesh& mesh() const { return source->mesh; }
  hlo::Computation* Cloned(const hlo::Computation& computation);
  void Warn(const hlo::Instruction& op, absl::string_view what);
};

class LoopValues;

class Emitter {
 public:
  Emitter(ProgramInProgress* program, hlo::Computation* computation)
      : program_(program), builder_(computation) {}

  ProgramInProgress& program() { return *program_; }
  const Mesh& mesh() const { return program_->mesh(); }
  hlo::Builder& builder() { return builder_; }
  const hlo::Builder& builder() const { return builder_; }

  // This device's position along `axes`, s32[].
  hlo::Instruction* Position(const AxisList& axes);
  // The global index at which this device's shard of a dimension begins, s32[].
  hlo::Instruction* ShardStart(const AxisList& axes, int64_t shard_size);
  // pred[shard]: whether an index of a padded dimension's shard is real.
  hlo::Instruction* RealIndices(const AxisList& axes, int64_t size);

  // Of the loop whose body this is; null elsewhere. Reshard does before the loop what it can.
  void set_loop(LoopValues* loop) { loop_ = loop; }

  // Axes that are unreduced in `to` and not in `array` make it the part of a sum.
  LocalArray Reshard(const LocalArray& array, const TensorSharding& to, const Why& why);
  // From here on `x`, where it repeats a scalar, is data: a manual computation made a scalar of its own on each device.
  void TakeAsData(const hlo::Instruction* x);
  // What Reshard would send now; what was sent before is free.
  double ReshardBytes(const LocalArray& array, const TensorSharding& to) const;

  // What `from` was made into by something that `key` names; nullptr where it was not yet, to be entered.
  hlo::Instruction*& Made(const hlo::Instruction* from, std::string key) { return steps_[{from, std::move(key)}]; }
  // A permute of `piece`, which is made of `from`, between positions along `axes`; recorded with its causes. (halo.cc)
  hlo::Instruction* Exchange(const LocalArray& from, hlo::Instruction* piece,
                             std::vector<std::pair<int64_t, int64_t>> pairs, const AxisList& axes, const Why& why);
  // The pieces of all positions along `axes`, one after the other along `dim`; recorded with its causes. (halo.cc)
  hlo::Instruction* GatherParts(const LocalArray& from, hlo::Instruction* piece, int64_t dim, const AxisList& axes,
                                const Why& why);

  // `array` with `fill` (a scalar) in the padding of `dims`; the same instruction where they have none.
  hlo::Instruction* MaskPadding(const LocalArray& array, absl::Span<const int64_t> dims, hlo::Instruction* fill);
  static bool HasPadding(const LocalArray& array, int64_t dim);

  // An instruction like `source` (attributes, metadata, called computations cloned) with local operands and shape.
  hlo::Instruction* CloneLocal(const hlo::Instruction& source, hlo::Shape shape,
                               absl::Span<hlo::Instruction* const> operands);

 private:
  using StepKey = std::pair<const hlo::Instruction*, std::string>;

  // An array whose elements are one scalar is no data: each device makes its part.
  bool Repeats(const LocalArray& array) const;
  hlo::Instruction* Repeated(const LocalArray& array, const TensorSharding& to);
  // A value that is the same along `axes` as a sum over them: itself on the first device, zero on the others.
  hlo::Instruction* AsPartial(hlo::Instruction* x, const AxisList& axes);
  hlo::Instruction* EmitStep(const LocalArray& array, const ReshardStep& step);
  hlo::Instruction* EmitSlice(const LocalArray& array, const ReshardStep& step);
  hlo::Instruction* EmitAllToAll(const LocalArray& array, const ReshardStep& step);
  hlo::Instruction* EmitPermute(const LocalArray& array, const ReshardStep& step);
  // Pads dimension step.dim so that it splits into the shards of step.after.
  hlo::Instruction* PadForSplit(const LocalArray& array, const ReshardStep& step);
  // Cuts `dim` to its global size where it became whole.
  hlo::Instruction* CutPadding(hlo::Instruction* x, const LocalArray& array, int64_t dim);
  hlo::ReplicaGroups GroupsOf(const AxisList& axes) const;
  hlo::Instruction* Zero(tensor::ElementType type);
  // The tag of a collective: attributes, its entry in `collectives`.
  void Record(hlo::Instruction* collective, const LocalArray& from, const ReshardStep& step,
              const TensorSharding& to, const Why& why);
  std::vector<std::string> Because(const LocalArray& from, const ReshardStep& step, const TensorSharding& to,
                                   const Why& why) const;
  // Names a step for `steps_`. The same shards may be those of arrays of different sizes (a slice that moves nothing).
  static std::string KeyOf(const ReshardStep& step, const LocalArray& array);

  ProgramInProgress* program_;
  hlo::Builder builder_;
  LoopValues* loop_ = nullptr;
  hlo::Instruction* partition_id_ = nullptr;
  int64_t collective_id_ = 0;  // Of the step that is being emitted.
  hlo::Instruction* collective_ = nullptr;
  std::map<AxisList, hlo::Instruction*> positions_;
  std::map<std::pair<AxisList, int64_t>, hlo::Instruction*> real_indices_;
  std::map<std::pair<hlo::Instruction*, AxisList>, hlo::Instruction*> partials_;
  absl::flat_hash_map<StepKey, hlo::Instruction*> steps_;
  absl::flat_hash_set<const hlo::Instruction*> own_scalars_;
};

// Sharding `placement` of an array with origins taken from `first` and then `second` where an axis occurs there.
TensorSharding WithOrigins(const DimensionAxes& placement, const TensorSharding& first, const TensorSharding& second);
// The origin of `axis` in `sharding`, of whichever dimension has it; null where none has.
OriginPtr OriginOf(const TensorSharding& sharding, const AxisRef& axis);

}  // namespace xlad::sharding
