// Fits the parameters of the cost model to measured times, and reads and writes them as text.
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
  double us = 0;  // The measured time of one run, in microseconds.
};

// Returns the parameters that minimize the sum of the squared relative errors. Adds a correction for each CorrectionKey
// at each measured size, from the fastest plan with this key and size. `directions`, `windows`, and the parameters of
// terms that no measured plan has are those of `base`. InvalidArgument if a plan cannot be built or a time is not
// positive and finite.
absl::StatusOr<CostModel> FitCosts(absl::Span<const MeasuredPlan> measured, const CostParameters& base = {});

// PrintCosts returns a line for each correction and each parameter except `directions` and `windows`. ParseCosts reads
// this text. It sets parameters without a line to their default values, and ignores empty lines and lines that begin
// with #. It returns InvalidArgument, with the first malformed line, if the text is malformed.
std::string PrintCosts(const CostModel& costs);
absl::StatusOr<CostModel> ParseCosts(absl::string_view text);

// Plans that a user chooses by size, in lines such as "all_reduce 64K-1M ring chunks=4". Sizes are in bytes
// (MovedBytes), and a range includes both ends. Words are separated by spaces or tabs. Empty lines and lines that begin
// with # are ignored.
class PlanRules {
 public:
  // InvalidArgument, with the number of the line, if the text is malformed.
  static absl::StatusOr<PlanRules> Parse(absl::string_view text);
  // Returns the plan of the first rule that applies to the spec, as text, or an empty text if there is no such rule.
  std::string Find(const CollectiveSpec& spec) const;

 private:
  struct Rule {
    CollectiveKind kind;
    int64_t least = 0, most = 0;
    std::string plan;
  };
  std::vector<Rule> rules_;
};

// Returns the number of bytes in a text such as "8", "64K", "256M" or "1g", or -1 if the text is not a size of at most
// 2^40 bytes.
int64_t ParseByteCount(absl::string_view text);

// Returns the size that a benchmark measures after `bytes`: bytes * factor, or bytes + step if `factor` is 0. Returns
// -1 if this is not more than `bytes`, or is more than `most`.
int64_t NextByteCount(int64_t bytes, int64_t factor, int64_t step, int64_t most);

}  // namespace xlad::collectives
