// Chooses a collective's plan in a process group if the caller does not choose one.
#pragma once

#include <string>
#include <vector>

#include "collectives/exec/group/lowering.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

// The properties that the choice depends on. They are equal on all ranks.
struct GroupMachine {
  int ranks = 1;
  bool exclusive = true;      // Every rank has a core of its own.
  int64_t scratch_bytes = 0;  // The scratch that an operation may use on each rank.
  int64_t cache_bytes = 0;    // The size of the last-level cache, which the ranks share.
};

struct GroupChoice {
  CollectivePlan plan;
  // The rule that chose it: "chosen by size, not by predicted time: one shot up to 16384 bytes of input".
  std::string why;
};

// If the caller gives a plan (PrepareOptions::plan), nothing is chosen, and there is no GroupChoice::why.
//
// All ranks must choose the same plan. A change of the choice therefore needs a new version of the control file
// (kVersion in control.cc).
GroupChoice ChooseGroupPlan(const CollectiveSpec& spec, bool registered, const GroupMachine& machine);

// Returns plans that a group can run. The first is that of ChooseGroupPlan. The others are windows (if `registered`),
// one shot (if the input fits into the scratch), and slots with several numbers of chunks.
std::vector<CollectivePlan> GroupPlans(const CollectiveSpec& spec, bool registered, const GroupMachine& machine);

// Returns the protocol by which a group runs a plan.
GroupProtocol ProtocolOf(const CollectivePlan& plan, const CollectiveSpec& spec);

// Whether the inputs and outputs of all ranks together take up at most three quarters of the last-level cache. If
// `in_place` is true, the input and the output of a rank share memory, so only the larger one counts.
bool FitsIntoCache(const CollectiveSpec& spec, bool in_place, int64_t cache_bytes);

// Whether the inputs and outputs of all ranks, which do not share memory, and the slots of a plan with this number of
// chunks together take up at most half of the last-level cache. If every rank has a core of its own, slots are not
// counted, and the result is that of FitsIntoCache.
bool FitsIntoCacheWithSlots(const CollectiveSpec& spec, int64_t chunks, const GroupMachine& machine);

}  // namespace xlad::collectives
