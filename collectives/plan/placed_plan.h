// The plan that a group of ranks on several hosts runs in place of the plan that was chosen without the placement.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace xlad::collectives {

// Returns the plan that replaces `plan` for a group whose ranks are on several hosts, or nullopt if `plan` remains.
// hosts[r] is a number for the host of rank r. The results have the same bits with both plans.
//
// A plan is replaced if it is an AllReduce in mode kRunToRun of at least 64 KiB that reduces in ascending order of the
// ranks, and sets neither an engine nor an order. There must be 2 to 16 hosts with equal numbers of ranks, two or more,
// and each host must have consecutive ranks. Elements must be accumulated in their own type and not averaged, because
// the new plan, "host_chain", stores partial results. If each of two hosts has n ranks, it sends 1 / n of the bytes
// that "direct" sends between them.
std::optional<CollectivePlan> PlanOverHosts(const CollectivePlan& plan, const CollectiveSpec& spec,
                                            const std::vector<int>& hosts);

// The rules by which the ranks of a group replace plans.
struct PlacementRules {
  // Rules of equal names replace the same plans by the same plans. Empty if no plan is replaced.
  std::string name;
  std::optional<CollectivePlan> (*replace)(const CollectivePlan& plan, const CollectiveSpec& spec,
                                           const std::vector<int>& hosts) = nullptr;
};

// Returns the rules of PlanOverHosts. Workers of one task may run different versions of xlad, so the name must change
// whenever PlanOverHosts is changed to return other plans.
PlacementRules RulesOverHosts();

}  // namespace xlad::collectives
