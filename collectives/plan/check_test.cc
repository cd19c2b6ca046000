// The checker accepts the schedules of all algorithms and refuses mutated ones.
#include "collectives/plan/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "collectives/plan/algorithm.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce,         CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter,     CollectiveKind::kAllToAll,
                                     CollectiveKind::kCollectivePermute, CollectiveKind::kBroadcast};

CollectiveSpec MakeSpec(CollectiveKind kind, int ranks, int64_t count) {
  CollectiveSpec spec;
  spec.kind = kind;
  spec.ranks = ranks;
  spec.reduction = Reduces(kind) ? Reduction::kSum : Reduction::kNone;
  spec.counts = {InputHasParts(kind) ? count * ranks : count};
  if (kind == CollectiveKind::kCollectivePermute) {
    for (int rank = 0; rank < ranks; rank += 2) spec.pairs.push_back({rank, (rank + 3) % ranks});
  }
  return spec;
}

bool HasDuplicateTargets(const CollectiveSpec& spec) { return !ValidateSpec(spec).ok(); }

TEST(CheckPlan, EveryAlgorithmKindSizeAndRankCount) {
  int checked = 0;
  for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 31, 33}) {
    for (int64_t count : {0, 1, 2, 5, 64, 1000, 85002}) {
      for (CollectiveKind kind : kKinds) {
        const CollectiveSpec spec = MakeSpec(kind, ranks, count);
        if (HasDuplicateTargets(spec)) continue;
        for (const Algorithm& algorithm : Algorithms()) {
          if (!algorithm.applies(spec)) continue;
          for (const auto& [chunks, channels] : std::vector<std::pair<int, int>>{{1, 1}, {3, 1}, {1, 2}, {2, 3}}) {
            if (ranks > 16 && chunks * channels > 2) continue;
            const CollectivePlan plan{std::string(algorithm.name), chunks, channels};
            for (int slots : {1, 3}) {
              const absl::Status status = CheckPlan(plan, spec, {slots});
              ASSERT_TRUE(status.ok()) << plan.ToString() << " " << spec.ToString() << ": " << status;
              ++checked;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 3000);
}

TEST(CheckPlan, SeveralOperands) {
  for (CollectiveKind kind : kKinds) {
    CollectiveSpec spec = MakeSpec(kind, 4, 3);
    spec.counts = {12, 0, 4, 8};
    const absl::StatusOr<CollectivePlan> plan = MakePlan(spec);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(CheckPlan(*plan, spec).ok()) << CheckPlan(*plan, spec);
  }
}

TEST(CheckPlan, FormulasAgreeWithTheLiterature) {
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 8, 8000);
  EXPECT_EQ(*WireBytes({"ring", 1, 1}, spec), 2 * 7 * 1000 * 4);
  EXPECT_EQ(*WireBytes({"direct", 1, 1}, spec), 2 * 7 * 1000 * 4);
  EXPECT_EQ(*WireBytes({"ring_2d", 1, 1}, spec), 2 * 7 * 1000 * 4);
  EXPECT_EQ(*WireBytes({"direct_one_shot", 1, 1}, spec), 7 * 8000 * 4);
  EXPECT_EQ(*WireBytes({"double_binary_tree", 1, 1}, spec), 4 * 4000 * 4);
  EXPECT_EQ(*Rounds({"ring", 1, 1}, spec), 14);
  EXPECT_EQ(*Rounds({"direct", 1, 1}, spec), 2);
  EXPECT_EQ(*Rounds({"ring_2d", 1, 1}, spec), 8);
  EXPECT_EQ(*Rounds({"double_binary_tree", 1, 1}, spec), 6);
}

// Makes one change to one operation. Returns false if the schedule is the same as before.
bool Mutate(Random* random, const CollectiveSpec& spec, std::vector<Schedule>* schedules) {
  Schedule& schedule = (*schedules)[random->Below(schedules->size())];
  if (schedule.ops.empty()) return false;
  const size_t index = random->Below(schedule.ops.size());
  ScheduleOp& op = schedule.ops[index];
  const Schedule before = schedule;
  switch (random->Below(7)) {
    case 0:
      schedule.ops.erase(schedule.ops.begin() + index);
      break;
    case 1:
      std::swap(op, schedule.ops[random->Below(schedule.ops.size())]);
      break;
    case 2:
      op.peer = random->Below(spec.ranks);
      break;
    case 3:
      op.dst.begin = random->Below(spec.output_elements() + 1);
      break;
    case 4:
      op.src.begin = random->Below(spec.input_elements() + 1);
      break;
    case 5:
      op.dst.count += 1;
      break;
    default:
      if (op.sources.empty()) return false;
      op.sources.erase(op.sources.begin() + random->Below(op.sources.size()));
  }
  return !(schedule == before);
}

TEST(CheckSchedules, RefusesMutants) {
  const std::unique_ptr<Random> random = SeededRandom(7);
  int refused = 0, survived = 0;
  for (int round = 0; round < 4000; ++round) {
    const CollectiveSpec spec = MakeSpec(kKinds[random->Below(3)], 2 + random->Below(5), 12);
    std::vector<const Algorithm*> candidates;
    for (const Algorithm& algorithm : Algorithms()) {
      if (algorithm.applies(spec)) candidates.push_back(&algorithm);
    }
    const CollectivePlan plan{std::string(candidates[random->Below(candidates.size())]->name), 1, 1};
    std::vector<Schedule> schedules = *BuildSchedules(plan, spec);
    const uint64_t hash = HashSchedules(schedules);
    if (!Mutate(random.get(), spec, &schedules)) continue;
    EXPECT_NE(HashSchedules(schedules), hash);
    ++(CheckSchedules(spec, schedules).ok() ? survived : refused);
  }
  // Changes of unused fields and swaps of independent operations are not errors.
  EXPECT_GT(refused, 2 * survived) << refused << " refused, " << survived << " survived";
}

TEST(CheckSchedules, DeadlocksListTheWaitingRanks) {
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 3, 9);
  std::vector<Schedule> schedules = *BuildSchedules({"ring", 1, 1}, spec);
  for (Schedule& schedule : schedules) std::swap(schedule.ops[0], schedule.ops[1]);
  const absl::Status status = CheckSchedules(spec, schedules).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("deadlock with 1 slots: 3 ranks wait, rank 0 at operation 0"));
}

TEST(CheckSchedules, OneShotInPlaceDeadlocks) {
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 3, 9);
  std::vector<Schedule> schedules = *BuildSchedules({"direct_one_shot", 1, 1}, spec);
  EXPECT_TRUE(CheckSchedules(spec, schedules).ok());
  for (Schedule& schedule : schedules) schedule.in_place = true;
  EXPECT_THAT(std::string(CheckSchedules(spec, schedules).status().message()), HasSubstr("in place deadlock"));
}

TEST(CheckSchedules, RefusesDifferentOrdersOnDifferentRanks) {
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 3, 4);
  std::vector<Schedule> schedules = *BuildSchedules({"direct_one_shot", 1, 1}, spec);
  for (ScheduleOp& op : schedules[1].ops) std::reverse(op.sources.begin(), op.sources.end());
  EXPECT_THAT(std::string(CheckSchedules(spec, schedules).status().message()),
              HasSubstr("is reduced as (2 + 1 + 0), on rank 0 as (0 + 1 + 2)"));
}

TEST(CheckSchedules, LargeCountsAreCheap) {
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 64, 1LL << 40);
  EXPECT_TRUE(CheckPlan({"ring", 1, 1}, spec).ok());
}

}  // namespace
}  // namespace xlad::collectives
