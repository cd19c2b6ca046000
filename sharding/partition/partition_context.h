// The state that the computations of a program share while the program is partitioned.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sharding/partition/collective_recorder.h"
#include "sharding/partition/deferred_reductions.h"
#include "sharding/partition/op_family.h"
#include "sharding/partition/partition.h"

namespace xlad::sharding {

class PartitionContext {
 public:
  // `source`, `module` and `source_map` (which may be null) must outlive the context.
  PartitionContext(const ShardedModule& source, FamilyTable families, hlo::Module* module, SourceMap* source_map)
      : source_(source), families_(families), module_(module), source_map_(source_map), recorder_(source) {}

  const ShardedModule& source() const { return source_; }
  const Mesh& mesh() const { return source_.mesh; }
  FamilyTable families() const { return families_; }
  hlo::Module* module() { return module_; }
  SourceMap* source_map() { return source_map_; }  // Null if the caller does not need the map.
  CollectiveRecorder& recorder() { return recorder_; }
  const DeferredReductions& deferred() const { return deferred_; }
  void set_deferred(DeferredReductions deferred) { deferred_ = std::move(deferred); }

  // The copy in the partitioned module of a reducer or comparator, which needs no partitioning.
  hlo::Computation* Cloned(const hlo::Computation& computation);
  // Adds "op: what (source line)" to the warnings if they do not contain it yet.
  void Warn(const hlo::Instruction& op, absl::string_view what);
  std::vector<std::string> TakeWarnings() { return std::move(warnings_); }

 private:
  const ShardedModule& source_;
  const FamilyTable families_;
  hlo::Module* const module_;
  SourceMap* const source_map_;
  CollectiveRecorder recorder_;
  DeferredReductions deferred_;
  std::vector<std::string> warnings_;
  absl::flat_hash_map<const hlo::Computation*, hlo::Computation*> cloned_;
};

}  // namespace xlad::sharding
