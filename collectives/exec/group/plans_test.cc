// The sizes at which a process group chooses another plan.
#include "collectives/exec/group/plans.h"

#include <gtest/gtest.h>

#include "collectives/plan/mapped.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

TEST(GroupPlans, TheRootOfABroadcastFillsOneSlotWhileTheOthersReadAnother) {
  const auto plan = [](int64_t bytes, bool exclusive, int ranks = 2) {
    const CollectiveSpec spec = MakeSpec(CollectiveKind::kBroadcast, ranks, bytes / 4);
    return ChooseGroupPlan(spec, /*registered=*/false, {ranks, exclusive, 256 << 10, 32 << 20});
  };
  EXPECT_EQ(plan(4 << 10, /*exclusive=*/true).algorithm, kMappedOneShot);
  EXPECT_EQ(plan(16 << 10, /*exclusive=*/true).AlgorithmText(), kMappedSlots);
  EXPECT_EQ(plan(16 << 10, /*exclusive=*/true).chunks, 4);
  EXPECT_EQ(plan(16 << 10, /*exclusive=*/false).algorithm, kMappedOneShot);
  // More ranks were not measured.
  EXPECT_EQ(plan(16 << 10, /*exclusive=*/true, 3).algorithm, kMappedOneShot);
  EXPECT_EQ(plan(17 << 10, /*exclusive=*/true, 3).AlgorithmText(), kMappedSlots);
  EXPECT_EQ(plan(17 << 10, /*exclusive=*/true, 3).chunks, 1);
}

TEST(GroupPlans, ResultsBypassTheCacheIfTheBuffersOfAllRanksDoNotFit) {
  const auto streams = [](CollectiveKind kind, int64_t mib, bool in_place) {
    const CollectiveSpec spec = MakeSpec(kind, 2, (mib << 20) / 4);
    return StreamsResults(spec, in_place, {2, /*exclusive=*/true, 256 << 10, 32 << 20});
  };
  EXPECT_FALSE(streams(CollectiveKind::kAllReduce, 6, /*in_place=*/false));
  EXPECT_TRUE(streams(CollectiveKind::kAllReduce, 7, /*in_place=*/false));
  // In place, the input and the output are the same memory.
  EXPECT_FALSE(streams(CollectiveKind::kAllReduce, 12, /*in_place=*/true));
  EXPECT_TRUE(streams(CollectiveKind::kAllReduce, 13, /*in_place=*/true));
}

}  // namespace
}  // namespace xlad::collectives
