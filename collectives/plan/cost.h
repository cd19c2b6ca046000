// How long a plan is expected to take, and the choice among plans.
//
// time = rounds * round_us + messages * message_us + sent bytes / bandwidth + reduced bytes / bandwidth. Rounds count
// most where ranks are more than cores, because each costs every rank a wake-up.
#pragma once

#include <vector>

#include "collectives/plan/plan.h"

namespace xlad::collectives {

struct PlanCost {
  CollectivePlan plan;
  double predicted_us = 0;
};

absl::StatusOr<double> PredictUs(const CollectivePlan& plan, const CollectiveSpec& spec, const Topology& topology);

// Every plan that applies, cheapest first; ties in the order of Algorithms().
absl::StatusOr<std::vector<PlanCost>> RankPlans(const CollectiveSpec& spec, const Topology& topology);

}  // namespace xlad::collectives
