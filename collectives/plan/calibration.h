// The parameters of the cost model from measured times, and their text in a file.
//
// All functions are pure and thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "collectives/plan/cost.h"

namespace xlad::collectives {

struct MeasuredPlan {
  CollectivePlan plan;
  CollectiveSpec spec;
  double us = 0;
};

// The parameters whose predictions have the least squares of relative errors, and a correction for each algorithm at
// each measured size. Terms that no measured plan has keep their values of `base`. InvalidArgument if a plan cannot be
// built or a time is not positive.
absl::StatusOr<CostModel> FitCosts(absl::Span<const MeasuredPlan> measured, const CostParameters& base = {});

// A line for each parameter and each correction. ParseCosts reads it; it returns InvalidArgument with the line that it
// does not understand.
std::string PrintCosts(const CostModel& costs);
absl::StatusOr<CostModel> ParseCosts(absl::string_view text);

// Plans that a user chooses by size: lines such as "all_reduce 64K-1M ring chunks=4". Sizes are in bytes (MovedBytes),
// both ends included; empty lines and lines that begin with # are left out.
class PlanRules {
 public:
  // InvalidArgument, with the number of the line, if the text is malformed.
  static absl::StatusOr<PlanRules> Parse(absl::string_view text);
  // The text of the first plan for the spec, or an empty one.
  std::string Find(const CollectiveSpec& spec) const;

 private:
  struct Rule {
    CollectiveKind kind;
    int64_t least = 0, most = 0;
    std::string plan;
  };
  std::vector<Rule> rules_;
};

// A size such as "8", "64K", "256M" or "1G", in bytes; -1 if the text is not a size.
int64_t ParseByteCount(absl::string_view text);

}  // namespace xlad::collectives
