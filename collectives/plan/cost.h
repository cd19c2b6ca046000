// Predicted times of plans, and the choice among plans.
//
// time = rounds * round_us + messages * message_us + bytes on the critical path / bandwidth + reduced bytes /
// bandwidth, an alpha-beta model (Hockney) with the terms of AlgorithmCost. Rounds dominate if there are more ranks
// than cores, because each round wakes up every rank.
#pragma once

#include <vector>

#include "collectives/plan/plan.h"

namespace xlad::collectives {

struct PlanCost {
  CollectivePlan plan;
  double predicted_us = 0;
};

// The predicted time of a plan in microseconds. Errors as in BuildSchedules.
absl::StatusOr<double> PredictUs(const CollectivePlan& plan, const CollectiveSpec& spec, const CostParameters& costs);

// The best numbers of chunks and channels for each algorithm that applies, fastest first. Equally fast ones are in the
// order of Algorithms().
absl::StatusOr<std::vector<PlanCost>> RankPlans(const CollectiveSpec& spec, const CostParameters& costs);

}  // namespace xlad::collectives
