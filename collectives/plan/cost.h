// Predicted times of plans, and the choice among plans.
//
// time = rounds * round_us + messages * message_us + bytes on the critical path / bandwidth + reduced bytes /
// bandwidth, an alpha-beta model (Hockney) with the terms of AlgorithmCost, times a factor that calibration.h measures.
// Rounds dominate if there are more ranks than cores, because each round wakes up every rank.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace xlad::collectives {

// What the predicted time of a plan consists of.
struct CostTerms {
  double rounds = 0;         // * round_us
  double messages = 0;       // * message_us
  double sent_bytes = 0;     // / gigabytes_per_s, one after the other
  double reduced_bytes = 0;  // / reduce_gigabytes_per_s
  double window_bytes = 0;   // / window_gigabytes_per_s
  double signal_rounds = 0;  // * signal_us
};

// Errors as in BuildSchedules. `directions` as in CostParameters.
absl::StatusOr<CostTerms> TermsOf(const CollectivePlan& plan, const CollectiveSpec& spec, int directions);

// The bytes of the input or the output of a rank, of which there are more.
int64_t MovedBytes(const CollectiveSpec& spec);

// "all_reduce ring" or "all_reduce ring chunks".
std::string CorrectionKey(const CollectivePlan& plan, const CollectiveSpec& spec);

// How many times longer than the parameters say plans took that move this number of bytes.
struct CostCorrection {
  double bytes = 0;
  double factor = 1;
  friend bool operator==(const CostCorrection&, const CostCorrection&) = default;
};

// The speed of a machine, as calibration.h measures it.
struct CostModel {
  CostModel() = default;
  CostModel(const CostParameters& speeds) : parameters(speeds) {}  // NOLINT(google-explicit-constructor)

  CostParameters parameters;
  // By CorrectionKey, ordered by bytes. Between two points, the factor is interpolated.
  std::map<std::string, std::vector<CostCorrection>> corrections;
};

struct PlanCost {
  CollectivePlan plan;
  double predicted_us = 0;
};

// The predicted time of a plan in microseconds. Errors as in BuildSchedules.
absl::StatusOr<double> PredictUs(const CollectivePlan& plan, const CollectiveSpec& spec, const CostModel& costs);

// The best numbers of chunks and channels for each algorithm that applies, fastest first. Equally fast ones are in the
// order of Algorithms().
absl::StatusOr<std::vector<PlanCost>> RankPlans(const CollectiveSpec& spec, const CostModel& costs);

// As MakePlan.
absl::StatusOr<CollectivePlan> ChoosePlan(const CollectiveSpec& spec, const CostModel& costs);

}  // namespace xlad::collectives
