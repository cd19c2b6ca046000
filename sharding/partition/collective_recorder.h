// Records the collectives that partitioning emits: a channel id for each, and the chain of causes from the op that
// needs the collective down to the user's annotations.
#pragma once

#include <string>
#include <vector>

#include "sharding/partition/local_array.h"
#include "sharding/partition/partition.h"
#include "sharding/partition/reshard_plan.h"

namespace xlad::sharding {

// What a collective does for a value: one step of taking `from` to the sharding `to`.
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
  // Records a collective that partitioning made and writes its attributes. Its channel is its id.
  void Record(hlo::Instruction* collective, const CollectivePurpose& purpose);
  // Takes over a collective that the user wrote in a manual computation. `local` is its copy in the partitioned
  // program: its groups are written out and it gets a channel of its own.
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
