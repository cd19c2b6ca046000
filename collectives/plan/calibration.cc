#include "collectives/plan/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/quoted.h"
#include "collectives/plan/algorithm.h"

namespace xlad::collectives {
namespace {

// The unknowns, in order, are the microseconds per round, message, sent byte, reduced byte, byte read through a window,
// and wait for signals.
constexpr int kTerms = 6;
using Vector = std::array<double, kTerms>;

Vector AsVector(const CostTerms& terms) {
  return {terms.rounds, terms.messages, terms.sent_bytes, terms.reduced_bytes, terms.window_bytes,
          terms.signal_rounds};
}

Vector TimesOf(const CostParameters& costs) {
  return {costs.round_us,
          costs.message_us,
          1e-3 / costs.gigabytes_per_s,
          1e-3 / costs.reduce_gigabytes_per_s,
          1e-3 / costs.window_gigabytes_per_s,
          costs.signal_us};
}

// Limits a rate to 1000 GB/s, so every byte has a cost.
double RateOf(double us_per_byte) { return 1e-3 / std::max(us_per_byte, 1e-6); }

void SetTimes(const Vector& times, CostParameters* costs) {
  costs->round_us = times[0];
  costs->message_us = times[1];
  costs->gigabytes_per_s = RateOf(times[2]);
  costs->reduce_gigabytes_per_s = RateOf(times[3]);
  costs->window_gigabytes_per_s = RateOf(times[4]);
  costs->signal_us = times[5];
}

// Solves a symmetric system of equations for the unknowns in `subset` by Gauss-Jordan elimination; the others are 0.
// Returns false if the system is singular.
bool Solve(std::array<Vector, kTerms> matrix, Vector right, unsigned subset, Vector* solution) {
  solution->fill(0);
  std::vector<int> unknowns;
  for (int t = 0; t < kTerms; ++t) {
    if (subset >> t & 1) unknowns.push_back(t);
  }
  for (const int pivot : unknowns) {
    if (matrix[pivot][pivot] < 1e-10) return false;
    for (const int row : unknowns) {
      if (row == pivot) continue;
      const double factor = matrix[row][pivot] / matrix[pivot][pivot];
      for (const int column : unknowns) matrix[row][column] -= factor * matrix[pivot][column];
      right[row] -= factor * right[pivot];
    }
  }
  for (const int t : unknowns) (*solution)[t] = right[t] / matrix[t][t];
  return true;
}

// Non-negative least squares: minimizes the sum of (terms * times - 1)^2 over times >= 0. There are only kTerms times,
// so every subset of them is tried: the other times are 0, and the least-squares solution is a candidate if it has no
// negative time. The best candidate is the result. Terms that are in no row keep their values from `base`.
Vector Fit(const std::vector<Vector>& rows, const Vector& base) {
  Vector scale{};
  for (const Vector& row : rows) {
    for (int t = 0; t < kTerms; ++t) scale[t] += row[t] * row[t];
  }
  unsigned used = 0;
  for (int t = 0; t < kTerms; ++t) {
    scale[t] = std::sqrt(scale[t]);
    if (scale[t] > 0) used |= 1u << t;
  }
  std::array<Vector, kTerms> matrix{};
  Vector right{};
  for (const Vector& row : rows) {
    for (int t = 0; t < kTerms; ++t) {
      if (scale[t] == 0) continue;
      right[t] += row[t] / scale[t];
      for (int u = 0; u < kTerms; ++u) matrix[t][u] += scale[u] == 0 ? 0 : row[t] * row[u] / scale[t] / scale[u];
    }
  }
  Vector best = base;
  double least = 0;  // The error minus the number of rows, which is the same for all subsets.
  for (unsigned subset = 1; subset < 1u << kTerms; ++subset) {
    Vector times;
    if ((subset & ~used) != 0 || !Solve(matrix, right, subset, &times)) continue;
    if (*std::min_element(times.begin(), times.end()) < 0) continue;
    double error = 0;
    // The residual is orthogonal to the terms of the subset, so the sum of its squares is the number of rows minus the
    // dot product of `times` and `right`.
    for (int t = 0; t < kTerms; ++t) error -= times[t] * right[t];
    if (error >= least) continue;
    least = error;
    for (int t = 0; t < kTerms; ++t) best[t] = scale[t] == 0 ? base[t] : times[t] / scale[t];
  }
  return best;
}

absl::Status Malformed(int line, absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": found ", Quoted(found), ", expected ", expected));
}

// Returns the parameters by name, for the text.
std::vector<std::pair<const char*, double*>> Named(CostParameters* costs) {
  return {{"round_us", &costs->round_us},
          {"message_us", &costs->message_us},
          {"gigabytes_per_s", &costs->gigabytes_per_s},
          {"reduce_gigabytes_per_s", &costs->reduce_gigabytes_per_s},
          {"window_gigabytes_per_s", &costs->window_gigabytes_per_s},
          {"signal_us", &costs->signal_us}};
}

}  // namespace

absl::StatusOr<CostModel> FitCosts(absl::Span<const MeasuredPlan> measured, const CostParameters& base) {
  CostModel costs = base;
  std::vector<Vector> rows;
  for (const MeasuredPlan& plan : measured) {
    XLAD_ASSIGN_OR_RETURN(const CostTerms terms, TermsOf(plan.plan, plan.spec, base.directions));
    if (!(plan.us > 0) || !std::isfinite(plan.us)) {
      return absl::InvalidArgumentError(
          absl::StrCat("found a time of ", plan.us, " us, expected a positive, finite time"));
    }
    rows.push_back(AsVector(terms));
    for (double& term : rows.back()) term /= plan.us;
  }
  SetTimes(Fit(rows, TimesOf(base)), &costs.parameters);
  // Only the fastest of several plans with the same key and size is used, because selection chooses it.
  std::map<std::string, std::map<double, const MeasuredPlan*>> fastest;
  for (const MeasuredPlan& plan : measured) {
    const double bytes = std::max(1.0, static_cast<double>(MovedBytes(plan.spec)));
    const MeasuredPlan*& known = fastest[CorrectionKey(plan.plan, plan.spec)][bytes];
    if (known == nullptr || plan.us < known->us) known = &plan;
  }
  std::map<std::string, std::vector<CostCorrection>> corrections;
  for (const auto& [key, by_bytes] : fastest) {
    for (const auto& [bytes, plan] : by_bytes) {
      XLAD_ASSIGN_OR_RETURN(const double predicted, PredictUs(plan->plan, plan->spec, costs));
      if (predicted > 0) corrections[key].push_back({bytes, plan->us / predicted});
    }
  }
  costs.corrections = std::move(corrections);
  return costs;
}

std::string PrintCosts(const CostModel& costs) {
  CostParameters copy = costs.parameters;
  std::string out;
  for (const auto& [name, value] : Named(&copy)) absl::StrAppendFormat(&out, "%s %.17g\n", name, *value);
  for (const auto& [key, points] : costs.corrections) {
    for (const CostCorrection& point : points) {
      absl::StrAppendFormat(&out, "correction %.17g %.17g %s\n", point.bytes, point.factor, key);
    }
  }
  return out;
}

absl::StatusOr<CostModel> ParseCosts(absl::string_view text) {
  constexpr double kMost = 1e12;
  CostModel costs;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    CostCorrection point;
    if (words[0] == "correction") {
      const bool valid = words.size() >= 5 && absl::SimpleAtod(words[1], &point.bytes) && point.bytes >= 1 &&
                         point.bytes < kMost && absl::SimpleAtod(words[2], &point.factor) && point.factor > 0 &&
                         point.factor < kMost;
      if (!valid) {
        return Malformed(number, line,
                         "\"correction BYTES FACTOR KIND ALGORITHM\" with 1 or more bytes and a positive factor, both "
                         "below 1e12");
      }
      costs.corrections[absl::StrJoin(words.begin() + 3, words.end(), " ")].push_back(point);
      continue;
    }
    bool known = false;
    for (const auto& [name, value] : Named(&costs.parameters)) {
      if (words[0] != name || words.size() != 2) continue;
      const bool is_rate = absl::EndsWith(name, "_per_s");
      known = absl::SimpleAtod(words[1], value) && *value >= 0 && *value < kMost && (!is_rate || *value > 0);
    }
    if (!known) {
      return Malformed(number, line,
                       "the name of a parameter and a number below 1e12 that is 0 or more, or positive for a rate");
    }
  }
  for (auto& [key, points] : costs.corrections) {
    std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  }
  return costs;
}

int64_t ParseByteCount(absl::string_view text) {
  int shift = 0;
  for (const auto& [suffix, bits] : {std::pair<const char*, int>{"K", 10}, {"M", 20}, {"G", 30}}) {
    if (absl::ConsumeSuffix(&text, suffix) || absl::ConsumeSuffix(&text, std::string(1, suffix[0] + 32))) {
      shift = bits;
      break;
    }
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0 || value > (int64_t{1} << 40) >> shift) return -1;
  return value << shift;
}

int64_t NextByteCount(int64_t bytes, int64_t factor, int64_t step, int64_t most) {
  int64_t next = 0;
  const bool overflows = factor > 0 ? __builtin_mul_overflow(bytes, factor, &next)
                                    : __builtin_add_overflow(bytes, step, &next);
  return overflows || next <= bytes || next > most ? -1 : next;
}

absl::StatusOr<PlanRules> PlanRules::Parse(absl::string_view text) {
  PlanRules rules;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    // A file of another system may end its lines with "\r\n".
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    const std::string place = absl::StrCat("line ", number);
    if (words.size() < 3) return Malformed(number, line, "\"COLLECTIVE BYTES-BYTES PLAN\"");
    Rule rule;
    const auto kind = ParseCollectiveKind(words[0]);
    if (!kind.ok()) return Annotate(kind.status(), place);
    rule.kind = *kind;
    const std::vector<absl::string_view> ends = absl::StrSplit(words[1], '-');
    rule.least = ParseByteCount(ends[0]);
    rule.most = ParseByteCount(ends.back());
    if (ends.size() > 2 || rule.least < 0 || rule.most < rule.least) {
      return Malformed(number, words[1], "a size or an ascending range of sizes, such as 64K-1M");
    }
    rule.plan = absl::StrJoin(words.begin() + 2, words.end(), " ");
    const auto plan = ParsePlan(rule.plan);
    if (!plan.ok()) return Annotate(plan.status(), place);
    if (const auto known = FindAlgorithm(plan->algorithm); !known.ok()) return Annotate(known.status(), place);
    rules.rules_.push_back(std::move(rule));
  }
  return rules;
}

std::string PlanRules::Find(const CollectiveSpec& spec) const {
  const int64_t bytes = MovedBytes(spec);
  for (const Rule& rule : rules_) {
    if (rule.kind == spec.kind && rule.least <= bytes && bytes <= rule.most) return rule.plan;
  }
  return "";
}

}  // namespace xlad::collectives
