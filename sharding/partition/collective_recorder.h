// Records the collectives that partitioning emits. The record of a collective has its channel id and the chain of
// causes from the op that needs it to the user's annotations.
#pragma once

#include <string>
#include <vector>

#include "sharding/partition/local_array.h"
#include "sharding/partition/partition.h"
#include "sharding/partition/reshard_plan.h"

namespace xlad::sharding {

// What a collective does: one step of resharding `from` to `to`.
struct CollectivePurpose {
  const LocalArray& from;
  const ReshardStep& step;
  const TensorSharding& to;
  const ReshardCause& cause;
};

class CollectiveRecorder {
 public:
  // `source` must outlive the recorder.
  explicit CollectiveRecorder(const ShardedModule& source) : source_(source) {}

  // An id that no other collective of the partitioned program has.
  CollectiveId NewId() { return CollectiveId{next_id_++}; }
  // Records a collective that partitioning added, and writes the axes and causes to its frontend attributes. Its
  // channel_id must be set to a value of NewId.
  void Record(hlo::Instruction* collective, const CollectivePurpose& purpose);
  // Records a collective that the user wrote in a manual computation. `local` is its copy in the partitioned program.
  // The copy gets a channel of its own, and explicit groups unless it is a collective-permute.
  void RecordUserCollective(const hlo::Instruction& source, hlo::Instruction* local);
  // The records of the collectives that `module` still contains after dead instructions were removed.
  std::vector<CollectiveInfo> TakeRecords(const hlo::Module& module);

 private:
  std::vector<std::string> Because(const CollectivePurpose& purpose) const;
  void Add(CollectiveInfo info, hlo::Instruction* collective);

  const ShardedModule& source_;
  int64_t next_id_ = 1;
  std::vector<CollectiveInfo> records_;
};

}  // namespace xlad::sharding
