// Which plan a process group uses if the caller does not say.
#pragma once

#include <vector>

#include "collectives/exec/group/lowering.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

// What the choice depends on. Equal on all ranks.
struct GroupMachine {
  int ranks = 1;
  bool exclusive = true;      // Every rank has a core.
  int64_t scratch_bytes = 0;  // What an operation may use on each rank.
  int64_t cache_bytes = 0;    // The last-level cache, which the ranks share.
};

CollectivePlan ChooseGroupPlan(const CollectiveSpec& spec, bool registered, const GroupMachine& machine);

// The plans that a group can run: that of ChooseGroupPlan, and those of all algorithms, slots with several numbers of
// chunks. Windows need registered buffers.
std::vector<CollectivePlan> GroupPlans(const CollectiveSpec& spec, bool registered, const GroupMachine& machine);

GroupProtocol ProtocolOf(const CollectivePlan& plan, const CollectiveSpec& spec);

// Whether the data of all ranks together does not stay in the cache, so that results are stored past it.
bool StreamsResults(const CollectiveSpec& spec, const GroupMachine& machine);

}  // namespace xlad::collectives
