// Tests of fitting the cost model to measured times, and of its text.
#include "collectives/plan/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

CostParameters SlowNetwork() {
  CostParameters costs;
  costs.round_us = 40;
  costs.message_us = 7;
  costs.gigabytes_per_s = 0.5;
  costs.reduce_gigabytes_per_s = 20;
  return costs;
}

// Returns the times that the model predicts for the algorithms without windows. Each is multiplied by a random factor
// between 1 - noise / 2 and 1 + noise / 2.
std::vector<MeasuredPlan> MeasuredBy(const CostParameters& costs, double noise, int ranks) {
  const std::unique_ptr<Random> random = SeededRandom(3);
  std::vector<MeasuredPlan> measured;
  for (const int64_t count : {16, 1000, 65536, 1 << 20}) {
    for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather}) {
      const CollectiveSpec spec = MakeSpec(kind, ranks, count);
      for (const Algorithm& algorithm : Algorithms()) {
        if (!Applies(algorithm, spec) || algorithm.needs_windows) continue;
        for (const int chunks : {1, 4}) {
          const CollectivePlan plan{.algorithm = std::string(algorithm.name), .chunks = chunks};
          measured.push_back({plan, spec, *PredictUs(plan, spec, costs) * (1 + noise * (random->Unit() - 0.5))});
        }
      }
    }
  }
  return measured;
}

TEST(FitCosts, FindsTheParametersOfTheTimes) {
  for (const int ranks : {2, 3, 8}) {
    const CostParameters expected = SlowNetwork();
    const CostParameters found = FitCosts(MeasuredBy(expected, 0, ranks))->parameters;
    EXPECT_NEAR(found.round_us, expected.round_us, 0.05 * expected.round_us) << ranks;
    EXPECT_NEAR(found.message_us, expected.message_us, 0.05 * expected.message_us) << ranks;
    EXPECT_NEAR(found.gigabytes_per_s, expected.gigabytes_per_s, 0.05 * expected.gigabytes_per_s) << ranks;
    EXPECT_EQ(found.window_gigabytes_per_s, CostParameters().window_gigabytes_per_s) << "no plan has windows";
  }
}

TEST(FitCosts, PredictsTheMeasuredTimes) {
  const std::vector<MeasuredPlan> measured = MeasuredBy(SlowNetwork(), 1.0, 8);
  const CostModel costs = *FitCosts(measured);
  for (const MeasuredPlan& plan : measured) {
    EXPECT_NEAR(*PredictUs(plan.plan, plan.spec, costs), plan.us, 0.02 * plan.us)
        << plan.plan.ToString() << " " << plan.spec.ToString();
  }
}

TEST(FitCosts, TheFastestOfSeveralNumbersOfChunksIsUsed) {
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllGather, 4, 65536);
  std::vector<MeasuredPlan> measured;
  for (const int chunks : {8, 4, 2}) {
    measured.push_back({{.algorithm = "ring", .chunks = chunks}, spec, chunks == 4 ? 70.0 : 900.0 * chunks});
  }
  const CostModel costs = *FitCosts(measured);
  EXPECT_NEAR(*PredictUs(measured[1].plan, spec, costs), 70, 1e-6);
  EXPECT_EQ(costs.corrections.at("all_gather ring chunks").size(), 1);
}

TEST(FitCosts, SelectionTakesTheFastestMeasuredPlan) {
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 8, 65536);
  for (const char* const fastest : {"ring", "swing", "direct", "double_binary_tree"}) {
    std::vector<MeasuredPlan> measured;
    for (const Algorithm& algorithm : Algorithms()) {
      if (!Applies(algorithm, spec) || algorithm.needs_windows) continue;
      for (const int chunks : {1, 4}) {
        const CollectivePlan plan{.algorithm = std::string(algorithm.name), .chunks = chunks};
        measured.push_back({plan, spec, algorithm.name == fastest ? 50.0 : 500.0});
      }
    }
    CollectiveSpec fast = spec;
    fast.mode = ReductionMode::kFast;
    EXPECT_EQ(ChoosePlan(fast, *FitCosts(measured))->algorithm, fastest);
  }
}

TEST(FitCosts, RefusesTimesThatAreNotPositive) {
  std::vector<MeasuredPlan> measured = MeasuredBy(SlowNetwork(), 0, 4);
  measured[1].us = 0;
  EXPECT_FALSE(FitCosts(measured).ok());
}

TEST(CostText, RoundTrips) {
  const CostModel costs = *FitCosts(MeasuredBy(SlowNetwork(), 0.7, 5));
  const CostModel read = *ParseCosts("# a comment\n" + PrintCosts(costs));
  EXPECT_FALSE(costs.corrections.empty());
  EXPECT_EQ(read.corrections, costs.corrections);
  EXPECT_EQ(read.parameters.round_us, costs.parameters.round_us);
  EXPECT_EQ(read.parameters.gigabytes_per_s, costs.parameters.gigabytes_per_s);
}

TEST(CostText, RefusesMalformedLines) {
  for (const char* const text : {"round_us", "round_us -1", "round_us nan", "gigabytes_per_s 0", "rounds_us 3",
                                 "correction 1 2", "correction 0 2 all_reduce ring", "correction 8 x all_reduce ring",
                                 "round_us 1 2"}) {
    const absl::Status status = ParseCosts(std::string("message_us 1\n") + text).status();
    EXPECT_THAT(std::string(status.message()), StartsWith("line 2: found")) << text;
  }
}

// Sizes from 0 to 2^40 bytes, the most that the flags of `xlad bench` accept, compared with arithmetic that does not
// overflow.
TEST(ByteCounts, GrowWithoutOverflow) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const int64_t numbers[] = {0, 1, 2, 3, 1000, (1 << 30) - 1, 1 << 30, kMost / 2, kMost / 2 + 1000, kMost - 1, kMost};
  for (const int64_t bytes : numbers) {
    for (const int64_t step : numbers) {
      for (const int64_t factor : {0, 2, 3, 1024, (1 << 30) - 1, 1 << 30}) {
        for (const int64_t most : numbers) {
          const __int128 exact = factor > 0 ? __int128{bytes} * factor : __int128{bytes} + step;
          const int64_t expected = exact > bytes && exact <= most ? static_cast<int64_t>(exact) : -1;
          EXPECT_EQ(NextByteCount(bytes, factor, step, most), expected)
              << bytes << " " << factor << " " << step << " " << most;
        }
      }
    }
  }
}

TEST(PlanRules, TheFirstRuleForTheSizeIsUsed) {
  const PlanRules rules = *PlanRules::Parse(
      "# plans of this cluster\r\n\r\nall_reduce 64K-1M\tring chunks=4\r\n"
      "all_reduce 0-1G direct\nbroadcast 8 binomial\n");
  EXPECT_EQ(rules.Find(MakeSpec(CollectiveKind::kAllReduce, 4, 16384)), "ring chunks=4");
  EXPECT_EQ(rules.Find(MakeSpec(CollectiveKind::kAllReduce, 4, 262144)), "ring chunks=4");
  EXPECT_EQ(rules.Find(MakeSpec(CollectiveKind::kAllReduce, 4, 16383)), "direct");
  EXPECT_EQ(rules.Find(MakeSpec(CollectiveKind::kBroadcast, 4, 2)), "binomial");
  EXPECT_EQ(rules.Find(MakeSpec(CollectiveKind::kBroadcast, 4, 3)), "");
}

TEST(PlanRules, RefusesMalformedLines) {
  for (const char* const text :
       {"all_reduce", "all_reduce 1-2", "all_redoce 1-2 ring", "all_reduce 2-1 ring", "all_reduce 1-2-3 ring",
        "all_reduce x ring", "all_reduce 1-2 ring chunks=x", "all_reduce 1-2 rnig"}) {
    const absl::Status status = PlanRules::Parse(std::string("\n") + text).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 2")) << text;
  }
}

}  // namespace
}  // namespace xlad::collectives
