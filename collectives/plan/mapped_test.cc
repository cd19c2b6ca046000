// The checker accepts the schedules for mapped memory for all kinds of collectives.
#include "collectives/plan/mapped.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "collectives/plan/check.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

void Check(const CollectivePlan& plan, const CollectiveSpec& spec) {
  SCOPED_TRACE(absl::StrCat(spec.ToString(), " by ", plan.ToString()));
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    const absl::StatusOr<Schedule> schedule = BuildSchedule(plan, spec, rank);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    schedules.push_back(*schedule);
  }
  const absl::StatusOr<ScheduleCosts> costs = CheckSchedules(spec, schedules);
  EXPECT_TRUE(costs.ok()) << costs.status();
}

TEST(MappedSchedules, AreAccepted) {
  for (int kind = 1; kind <= kNumCollectiveKinds; ++kind) {
    for (const int ranks : {2, 3, 4, 7}) {
      for (const int64_t count : {1, 16, 61, 200}) {
        const CollectiveSpec spec = MakeSpec(static_cast<CollectiveKind>(kind), ranks, count);
        Check({.algorithm = kMappedOneShot}, spec);
        Check({.algorithm = kMappedWindows}, spec);
        for (const int chunks : {1, 2, 3, 5}) Check({.algorithm = kMappedSlots, .chunks = chunks}, spec);
      }
    }
  }
}

TEST(MappedSchedules, PartsOfDifferentSizesAreAccepted) {
  for (const char* text :
       {"all_gather f32[21] over 4 ranks sizes 7,0,13,1", "reduce_scatter(sum) f32[21] over 4 ranks sizes 7,0,13,1",
        "gather f32[21] over 4 ranks root 2 sizes 7,0,13,1", "scatter f32[21] over 4 ranks root 3 sizes 7,0,13,1",
        "all_to_all f32[36] over 3 ranks sizes 1,2,3,4,0,6,7,8,5", "all_to_all f32[90] over 2 ranks sizes 0,1,89,0",
        "all_gather f32[0] over 3 ranks sizes 0,0,0", "all_to_all f32[0] over 2 ranks sizes 0,0,0,0",
        "all_gather bf16[300] over 5 ranks sizes 100,1,99,33,67"}) {
    const absl::StatusOr<CollectiveSpec> spec = ParseSpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status();
    Check({.algorithm = kMappedOneShot}, *spec);
    Check({.algorithm = kMappedWindows}, *spec);
    for (const int chunks : {1, 2, 3, 5}) Check({.algorithm = kMappedSlots, .chunks = chunks}, *spec);
  }
}

TEST(MappedSchedules, AScheduleWithoutASignalIsRejected) {
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 3, 64);
  for (const char* algorithm : {kMappedOneShot, kMappedSlots, kMappedWindows}) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < 3; ++rank) schedules.push_back(*BuildSchedule({.algorithm = algorithm}, spec, rank));
    std::vector<ScheduleOp>& ops = schedules[1].ops;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind != OpKind::kSignal) continue;
      ops.erase(ops.begin() + static_cast<int64_t>(i));
      break;
    }
    EXPECT_FALSE(CheckSchedules(spec, schedules).ok()) << algorithm;
  }
}

TEST(MappedSchedules, MappedSlotsAcceptMoreChunksThanRings) {
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 2, 200'000);
  EXPECT_TRUE(BuildSchedule({.algorithm = kMappedSlots, .chunks = 5000}, spec, 1).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(BuildSchedule({.algorithm = "ring", .chunks = 5000}, spec, 1).status()));
}

TEST(MappedSchedules, OtherPlansAreRefused) {
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 2, 8);
  EXPECT_FALSE(IsMapped({.algorithm = "ring"}));
  EXPECT_TRUE(IsMapped({.algorithm = kMappedSlots}));
  EXPECT_TRUE(absl::IsInvalidArgument(BuildSchedule({.algorithm = kMappedWindows, .order = {1, 0}}, spec, 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(BuildSchedule({.algorithm = kMappedSlots, .chunks = 0}, spec, 0).status()));
}

}  // namespace
}  // namespace xlad::collectives
