// Calibration of groups whose ranks are threads.
#include "collectives/exec/messages/calibrate.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "collectives/exec/group/calibrator.h"
#include "collectives/exec/testing/reading_clock.h"
#include "collectives/plan/calibration.h"

namespace xlad::collectives {
namespace {

TEST(Calibrate, AllRanksHaveTheSamePositiveParameters) {
  constexpr int kRanks = 3;
  auto groups = *MessageGroup::InProcess(kRanks, {});
  std::vector<CostModel> found(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const ReadingClock clock(kNsPerMs / 10);
      absl::StatusOr<CostModel> costs = Calibrate(groups[rank].get(), clock, 100);
      ASSERT_TRUE(costs.ok()) << costs.status();
      found[rank] = *std::move(costs);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(PrintCosts(found[0]), PrintCosts(found[1]));
  EXPECT_EQ(PrintCosts(found[0]), PrintCosts(found[2]));
  EXPECT_TRUE(found[0].corrections.contains("all_reduce direct"));
  CollectiveSpec spec;
  spec.reduction = Reduction::kSum;
  spec.ranks = kRanks;
  spec.counts = {4096};
  const auto plans = RankPlans(spec, found[0]);
  ASSERT_TRUE(plans.ok()) << plans.status();
  for (const PlanCost& plan : *plans) EXPECT_GT(plan.predicted_us, 0) << plan.plan.ToString();
}

// Among two ranks, several algorithms have the same schedules. Their predicted times are equal, too.
TEST(Calibrate, PlansWithEqualSchedulesHaveEqualTimes) {
  auto groups = *MessageGroup::InProcess(2, {});
  const ReadingClock clock(kNsPerMs / 10), clock_of_other(kNsPerMs / 10);
  std::thread other([&] { EXPECT_TRUE(Calibrate(groups[1].get(), clock_of_other, 100).ok()); });
  const absl::StatusOr<CostModel> found = Calibrate(groups[0].get(), clock, 100);
  other.join();
  ASSERT_TRUE(found.ok()) << found.status();
  const CollectiveSpec spec = MeasuredSpec(CollectiveKind::kAllGather, 2, 1 << 10);
  std::map<uint64_t, double> times;
  int equal = 0;
  for (const Algorithm& algorithm : Algorithms()) {
    if (algorithm.needs_windows || !Applies(algorithm, spec)) continue;
    const CollectivePlan plan{.algorithm = std::string(algorithm.name)};
    const double us = *PredictUs(plan, spec, *found);
    const auto [at, is_new] = times.emplace(HashSchedules(*BuildSchedules(plan, spec)), us);
    EXPECT_NEAR(us, at->second, 1e-6 * us) << plan.ToString();
    equal += is_new ? 0 : 1;
  }
  EXPECT_GT(equal, 1);
}

TEST(Calibrate, WithoutABudgetNoPlanIsMeasured) {
  auto groups = *MessageGroup::InProcess(1, {});
  EXPECT_EQ(PrintCosts(*Calibrate(groups[0].get(), RealClock(), 0)), PrintCosts(CostModel()));
}

}  // namespace
}  // namespace xlad::collectives
