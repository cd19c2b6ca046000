// Collectives of more than 2^31 elements: plans, schedules and their texts, without the data.
#include <gtest/gtest.h>

#include "collectives/plan/algorithm.h"
#include "collectives/plan/check.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

// Calls `body` with every collective of 2^31 + 7 and 2^33 + 5 elements per rank or part, of 1 and 8 bytes.
template <typename F>
void ForEachLargeSpec(const F& body) {
  for (const int64_t count : {(int64_t{1} << 31) + 7, (int64_t{1} << 33) + 5}) {
    for (const tensor::ElementType type : {tensor::ElementType::kU8, tensor::ElementType::kF64}) {
      for (const int ranks : {2, 3, 8}) {
        for (int kind = 1; kind <= kNumCollectiveKinds; ++kind) {
          CollectiveSpec spec = MakeSpec(static_cast<CollectiveKind>(kind), ranks, count);
          spec.type = type;
          body(spec);
        }
      }
    }
  }
}

TEST(LargeCounts, EveryPlanIsCorrect) {
  int checked = 0;
  ForEachLargeSpec([&](const CollectiveSpec& spec) {
    for (const Algorithm& algorithm : Algorithms()) {
      if (!Applies(algorithm, spec)) continue;
      for (const int chunks : {1, 3}) {
        if (chunks > 1 && !algorithm.uses_chunks) continue;
        const CollectivePlan plan{.algorithm = std::string(algorithm.name), .chunks = chunks};
        const absl::Status status = CheckPlan(plan, spec);
        ASSERT_TRUE(status.ok()) << plan.ToString() << ": " << status;
        ++checked;
      }
    }
  });
  EXPECT_GT(checked, 500);
}

TEST(LargeCounts, TextsRoundTripAndCostsArePositive) {
  ForEachLargeSpec([](const CollectiveSpec& spec) {
    const absl::StatusOr<CollectivePlan> plan = MakePlan(spec);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const absl::StatusOr<CollectiveSpec> again = ParseSpec(spec.ToString());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->input_bytes(), spec.input_bytes());
    const ScheduleSet set{*again, *BuildSchedules(*plan, spec)};
    const absl::StatusOr<ScheduleSet> read = ParseScheduleSet(Print(set));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->schedules, set.schedules);
    if (spec.kind == CollectiveKind::kBarrier) return;
    // Each collective moves at least one part or, in a permutation, one input to another rank.
    const int64_t least = spec.input_elements() / spec.ranks;
    EXPECT_GE(*WireBytes(*plan, spec), least) << spec.ToString();
    EXPECT_GT(*PredictUs(*plan, spec, {}), 0);
    EXPECT_GE(MovedBytes(spec), spec.input_bytes());
  });
}

}  // namespace
}  // namespace xlad::collectives
