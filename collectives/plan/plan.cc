// Builds the schedules of plans and computes their costs.
#include "collectives/plan/plan.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/message_type.h"

namespace xlad::collectives {
namespace {

constexpr int kMaxChannels = 4096;
constexpr int kMaxChunks = 4096;
// The maximum number of chunks on mapped memory. It is large because the size of a slot does not depend on the size of
// the data.
constexpr int kMaxMappedChunks = 1 << 20;

// In run-to-run mode, up to this many ranks reduce in ascending order, with one rounding. This is the order of
// `direct`, which sends as few bytes as a ring, and of all algorithms on mapped memory. For more ranks, `direct` sends
// too many messages, and the order is that of the best plan for the default speeds.
constexpr int kMaxAscendingRanks = 64;
constexpr char kAscending[] = "ascending";

// Returns the names of the algorithms that can replace `refused`. Ranks that exchange messages cannot run algorithms on
// mapped memory, so these replace only each other.
std::string NamesOf(const CollectiveSpec& spec, const Algorithm& refused,
                    bool (*fits)(const Algorithm&, const CollectiveSpec&)) {
  std::string names;
  for (const Algorithm& algorithm : Algorithms()) {
    if (algorithm.needs_windows != refused.needs_windows || !fits(algorithm, spec)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", algorithm.name);
  }
  return names;
}

// Returns what is expected instead of a parameter that the algorithm does not use, or "" if there is no such parameter.
std::string RefuseUnusedParameters(const CollectivePlan& plan, const Algorithm& algorithm) {
  const CollectivePlan defaults;
  struct Parameter {
    absl::string_view name;
    bool is_set;
    bool Algorithm::* uses;
  };
  for (const auto& [name, is_set, uses] : {Parameter{"chunks", plan.chunks != defaults.chunks, &Algorithm::uses_chunks},
                                           {"channels", plan.channels != defaults.channels, &Algorithm::uses_channels},
                                           {"grid", plan.grid != defaults.grid, &Algorithm::uses_grid},
                                           {"radix", plan.radix != defaults.radix, &Algorithm::uses_radix}}) {
    if (!is_set || algorithm.*uses) continue;
    std::string text = absl::StrCat("no parameter ", name, ": ", algorithm.name, " does not use it");
    // Most algorithms use the other two.
    if (uses != &Algorithm::uses_grid && uses != &Algorithm::uses_radix) return text;
    absl::string_view separator = "; the algorithms that use it are ";
    for (const Algorithm& other : Algorithms()) {
      if (other.*uses) absl::StrAppend(&text, std::exchange(separator, ", "), other.name);
    }
    return text;
  }
  return "";
}

absl::Status CheckParameters(const CollectivePlan& plan, const CollectiveSpec& spec, const Algorithm& algorithm) {
  const auto error = [&](absl::string_view expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("found plan ", plan.ToString(), " for ", spec.ToString(), ", expected ", expected));
  };
  const int most_chunks = algorithm.needs_windows ? kMaxMappedChunks : kMaxChunks;
  if (plan.chunks < 1 || plan.chunks > most_chunks || plan.channels < 1 || plan.channels > kMaxChannels) {
    return error(absl::StrCat("chunks of 1 to ", most_chunks, " and channels of 1 to ", kMaxChannels));
  }
  const std::string expected = RefuseUnusedParameters(plan, algorithm);
  if (!expected.empty()) return error(expected);
  if (plan.order.empty()) return absl::OkStatus();
  std::vector<bool> seen(spec.ranks);
  for (const int rank : plan.order) {
    if (rank < 0 || rank >= spec.ranks || seen[rank]) return error("each rank once in `order`");
    seen[rank] = true;
  }
  return std::ssize(plan.order) == spec.ranks ? absl::OkStatus() : error("each rank once in `order`");
}

// Returns the algorithm of a plan if the plan can be built for the spec.
absl::StatusOr<const Algorithm*> AlgorithmFor(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_RETURN_IF_ERROR(ValidateSpec(spec));
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(plan.algorithm));
  XLAD_RETURN_IF_ERROR(CheckParameters(plan, spec, *algorithm));
  const std::string expected = algorithm->refuses(plan, spec);
  if (!expected.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("found algorithm ", plan.algorithm, " for ", spec.ToString(),
                                                   ", which it runs only for ", expected, "; expected one of ",
                                                   NamesOf(spec, *algorithm, Applies)));
  }
  const bool canonical = spec.mode == ReductionMode::kCanonical && Reduces(spec.kind);
  if (canonical && (!KeepsCanonicalOrder(*algorithm, spec) || !plan.order.empty())) {
    return absl::InvalidArgumentError(absl::StrCat("found algorithm ", plan.AlgorithmText(), " for ", spec.ToString(),
                                                   ", which does not keep the canonical order of reduction; expected ",
                                                   "one of ", NamesOf(spec, *algorithm, KeepsCanonicalOrder)));
  }
  if (spec.reduction == Reduction::kAverage && !CanAverage(*algorithm, spec)) {
    return absl::InvalidArgumentError(absl::StrCat("found algorithm ", plan.AlgorithmText(), " for ", spec.ToString(),
                                                   ", which sends partial results, so it would divide more than once; ",
                                                   "expected one of ", NamesOf(spec, *algorithm, CanAverage)));
  }
  return algorithm;
}

}  // namespace

bool Applies(const Algorithm& algorithm, const CollectiveSpec& spec) {
  const CollectivePlan plan{.algorithm = std::string(algorithm.name)};
  const bool canonical = spec.mode == ReductionMode::kCanonical && Reduces(spec.kind);
  if (spec.reduction == Reduction::kAverage && !CanAverage(algorithm, spec)) return false;
  return algorithm.refuses(plan, spec).empty() && (!canonical || KeepsCanonicalOrder(algorithm, spec));
}

bool CanAverage(const Algorithm& algorithm, const CollectiveSpec& spec) {
  const CollectivePlan plan{.algorithm = std::string(algorithm.name)};
  return algorithm.reduces_once && algorithm.refuses(plan, spec).empty();
}

bool KeepsCanonicalOrder(const Algorithm& algorithm, const CollectiveSpec& spec) {
  const CollectivePlan plan{.algorithm = std::string(algorithm.name)};
  if (algorithm.is_canonical == nullptr || !algorithm.is_canonical(spec)) return false;
  return algorithm.refuses(plan, spec).empty();
}

absl::StatusOr<CollectivePlan> MakePlan(const CollectiveSpec& spec) { return ChoosePlan(spec, CostModel()); }

absl::StatusOr<CollectivePlan> ChoosePlan(const CollectiveSpec& spec, const CostModel& costs) {
  XLAD_ASSIGN_OR_RETURN(std::vector<PlanCost> ranked, RankPlans(spec, costs));
  const auto none = [&] { return absl::InternalError(absl::StrCat("found no algorithm for ", spec.ToString())); };
  if (ranked.empty()) return none();
  if (spec.mode != ReductionMode::kRunToRun || !Reduces(spec.kind)) return std::move(ranked.front().plan);
  // In run-to-run mode, the order must depend on the spec only, so it is chosen without `costs`.
  std::vector<PlanCost> reference;
  if (spec.ranks > kMaxAscendingRanks) {
    XLAD_ASSIGN_OR_RETURN(reference, RankPlans(spec, {}));
    if (reference.empty()) return none();
  }
  const std::string order = reference.empty() ? kAscending : ReductionOrder(reference.front().plan);
  for (PlanCost& candidate : ranked) {
    if (ReductionOrder(candidate.plan) == order) return std::move(candidate.plan);
  }
  if (reference.empty()) return none();
  return std::move(reference.front().plan);
}

std::string ReductionOrder(const CollectivePlan& plan) {
  const absl::StatusOr<const Algorithm*> algorithm = FindAlgorithm(plan.algorithm);
  return algorithm.ok() && (*algorithm)->reduces_once ? kAscending : plan.ToString();
}

absl::StatusOr<Schedule> BuildSchedule(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, AlgorithmFor(plan, spec));
  if (rank < 0 || rank >= spec.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("found rank ", rank, " of ", spec.ToString(), ", expected 0 to ", spec.ranks - 1));
  }
  return algorithm->build(plan, spec, rank);
}

absl::StatusOr<std::vector<Schedule>> BuildSchedules(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, AlgorithmFor(plan, spec));
  std::vector<Schedule> schedules;
  schedules.reserve(spec.ranks);
  for (int rank = 0; rank < spec.ranks; ++rank) schedules.push_back(algorithm->build(plan, spec, rank));
  return schedules;
}

absl::StatusOr<uint64_t> ScheduleHash(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const Schedule schedule, BuildSchedule(plan, spec, 0));
  const uint64_t texts = Hash64(plan.ToString(), Hash64(spec.ToString()));
  return Hash64(absl::StrCat(HashSchedules({&schedule, 1})), texts);
}

absl::StatusOr<int64_t> WireBytes(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, AlgorithmFor(plan, spec));
  return algorithm->cost(plan, spec).sent_elements * tensor::ByteWidth(MessageType(plan, spec));
}

absl::StatusOr<int64_t> Rounds(const CollectivePlan& plan, const CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, AlgorithmFor(plan, spec));
  return algorithm->cost(plan, spec).rounds;
}

}  // namespace xlad::collectives
