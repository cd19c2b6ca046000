// Predicted times of plans, and the choice of a plan by predicted time.
//
// time = factor * (rounds * round_us + messages * message_us + sent bytes / rate + reduced bytes / rate + ...)
//
// This is an alpha-beta model (Hockney) with the terms of AlgorithmCost. calibration.h fits the rates to measured times
// and, for each algorithm and size, the factor. If there are more ranks than cores, the rounds take most of the time,
// because each round wakes up every rank.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collectives/plan/cost_parameters.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

// The terms of the predicted time of a plan.
struct CostTerms {
  double rounds = 0;         // Multiplied by round_us.
  double messages = 0;       // Multiplied by message_us.
  double sent_bytes = 0;     // Divided by gigabytes_per_s. These bytes are sent one after the other.
  double reduced_bytes = 0;  // Divided by reduce_gigabytes_per_s.
  double window_bytes = 0;   // Divided by window_gigabytes_per_s.
  double signal_rounds = 0;  // Multiplied by signal_us.
};

// Returns the terms of a plan. `directions` is CostParameters::directions. Errors are those of BuildSchedules.
absl::StatusOr<CostTerms> TermsOf(const CollectivePlan& plan, const CollectiveSpec& spec, int directions);

// Returns the number of bytes of the root's input or output, whichever is larger. If there is no root, rank 0 counts.
int64_t MovedBytes(const CollectiveSpec& spec);

// Returns the key of a plan's corrections: the kind and the algorithm, as in "all_reduce ring", and the word "chunks"
// if the plan has several chunks, as in "all_reduce ring chunks". Plans with equal keys share their corrections.
std::string CorrectionKey(const CollectivePlan& plan, const CollectiveSpec& spec);

// The measured time of plans with this number of bytes, divided by the time that the parameters predict.
struct CostCorrection {
  double bytes = 0;
  double factor = 1;
  friend bool operator==(const CostCorrection&, const CostCorrection&) = default;
};

// The speed of a machine, which calibration.h fits to measured times.
struct CostModel {
  CostModel() = default;
  CostModel(const CostParameters& speeds) : parameters(speeds) {}  // NOLINT(google-explicit-constructor)

  CostParameters parameters;
  // By CorrectionKey, ordered by bytes. Between two points, the factor is interpolated; beyond the first and the last
  // point, it is that of the nearest point.
  std::map<std::string, std::vector<CostCorrection>> corrections;
};

struct PlanCost {
  CollectivePlan plan;
  double predicted_us = 0;
};

// Returns the predicted time of a plan in microseconds. Errors are those of BuildSchedules.
absl::StatusOr<double> PredictUs(const CollectivePlan& plan, const CollectiveSpec& spec, const CostModel& costs);

// Returns the best plan of each algorithm that applies, with its best numbers of chunks and channels (powers of two),
// fastest first. Algorithms that need windows are omitted unless costs.parameters.windows is true.
// Plans of equal time are in the order of Algorithms(). InvalidArgument if the spec is invalid.
absl::StatusOr<std::vector<PlanCost>> RankPlans(const CollectiveSpec& spec, const CostModel& costs);

// Like MakePlan, at the speeds and with the corrections of `costs`.
absl::StatusOr<CollectivePlan> ChoosePlan(const CollectiveSpec& spec, const CostModel& costs);

}  // namespace xlad::collectives
