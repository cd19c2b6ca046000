// The plan that a group of ranks on several hosts runs in place of the plan that was chosen without the placement.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace xlad::collectives {

// Returns the plan that replaces `plan` if the ranks of a group are on the hosts `hosts` (one number for each rank,
// equal for ranks of one host), or nullopt if `plan` remains. The results have the same bits with both plans.
//
// Replaced are AllReduce plans in mode kRunToRun that reduce in ascending order of the ranks, of at least 64 KiB,
// if several hosts have the same number of ranks, two or more, and each host has consecutive ranks. The type must be
// accumulated in itself, because "host_chain" stores partial results. Between hosts, its plan sends 1 / ranks per host
// of the bytes that "direct" sends.
std::optional<CollectivePlan> PlanOverHosts(const CollectivePlan& plan, const CollectiveSpec& spec,
                                            const std::vector<int>& hosts);

// The rules by which the ranks of a group replace plans.
struct PlacementRules {
  // Rules of equal names replace the same plans by the same plans. Empty if no plan is replaced.
  std::string name;
  std::optional<CollectivePlan> (*replace)(const CollectivePlan& plan, const CollectiveSpec& spec,
                                           const std::vector<int>& hosts) = nullptr;
};

// Returns the rules of PlanOverHosts. Their name must be changed with each change after which the function returns
// another plan, because the workers of a task may be of different versions.
PlacementRules RulesOverHosts();

}  // namespace xlad::collectives
