// The checker accepts the schedules of all algorithms and refuses mutants.
#include "collectives/plan/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/testing/case_count.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/interpret.h"
#include "collectives/plan/mapped.h"
#include "collectives/plan/mutate.h"

namespace xlad::collectives {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr CollectiveKind KindAt(int i) { return static_cast<CollectiveKind>(i + 1); }

CollectiveSpec MakeCheckedSpec(CollectiveKind kind, int ranks, int64_t count) {
  CollectiveSpec spec;
  spec.kind = kind;
  spec.ranks = ranks;
  spec.reduction = Reduces(kind) ? Reduction::kSum : Reduction::kNone;
  spec.counts = {InputHasParts(kind) ? count * ranks : count};
  if (kind == CollectiveKind::kBarrier) spec.counts = {0};
  if (kind == CollectiveKind::kCollectivePermute || kind == CollectiveKind::kSendRecv) {
    for (int rank = 0; rank < ranks; rank += 2) spec.pairs.push_back({rank, (rank + 1) % ranks});
  }
  if (HasRoot(kind)) spec.root = count % ranks;
  return spec;
}

std::vector<CollectivePlan> PlansOf(const CollectiveSpec& spec, int chunks, int channels) {
  std::vector<CollectivePlan> plans;
  for (const Algorithm& algorithm : Algorithms()) {
    if (!Applies(algorithm, spec)) continue;
    plans.push_back({.algorithm = std::string(algorithm.name),
                     .chunks = algorithm.uses_chunks ? chunks : 1,
                     .channels = algorithm.uses_channels ? channels : 1});
  }
  return plans;
}

// One slot is the hardest case, because additional slots only remove waits. Above 24 ranks, only powers of two, their
// neighbors, prime numbers and products of many small ones are tried by default.
TEST(CheckPlan, EveryAlgorithmKindAndNumberOfRanks) {
  constexpr std::array kLarge = {27, 30, 31, 32, 33, 36, 43, 48, 60, 63, 64};
  int checked = 0;
  for (int ranks = 1; ranks <= 64; ++ranks) {
    if (ranks > 24 && !AllCases() && !absl::c_linear_search(kLarge, ranks)) continue;
    for (int i = 0; i < kNumCollectiveKinds; ++i) {
      const CollectiveSpec spec = MakeCheckedSpec(KindAt(i), ranks, 128 * ranks);
      for (const CollectivePlan& plan : PlansOf(spec, 1, 1)) {
        const absl::Status status = CheckPlan(plan, spec, {1});
        EXPECT_TRUE(status.ok()) << plan.ToString() << ": " << status;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, AllCases() ? 2000 : 1000);
}

TEST(CheckPlan, EverySizeChunkChannelAndSlot) {
  int64_t position = 0;
  for (int ranks : {2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 24}) {
    ++position;
    for (int64_t count : {0, 1, 2, 5, 64, 85002}) {
      for (int i = 0; i < kNumCollectiveKinds; ++i) {
        const CollectiveSpec spec = MakeCheckedSpec(KindAt(i), ranks, count);
        for (const auto& [chunks, channels] : std::vector<std::pair<int, int>>{{3, 1}, {1, 4}, {2, 6}}) {
          if (!TriesCase(position++, 2) || (ranks > 13 && chunks * channels > 4)) continue;
          for (const CollectivePlan& plan : PlansOf(spec, chunks, channels)) {
            const absl::Status status = CheckPlan(plan, spec, {1 + static_cast<int>(count % 8)});
            ASSERT_TRUE(status.ok()) << plan.ToString() << " " << spec.ToString() << ": " << status;
          }
        }
      }
    }
  }
}

TEST(CheckPlan, CanonicalOrderOfEveryAlgorithmThatKeepsIt) {
  int checked = 0;
  for (int ranks = 1; ranks <= 20; ++ranks) {
    for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter}) {
      CollectiveSpec spec = MakeCheckedSpec(kind, ranks, 37);
      spec.mode = ReductionMode::kCanonical;
      for (const CollectivePlan& plan : PlansOf(spec, 1, 1)) {
        const absl::Status status = CheckPlan(plan, spec);
        EXPECT_TRUE(status.ok()) << plan.ToString() << ": " << status;
        ++checked;
      }
      const absl::Status refused = BuildSchedules({.algorithm = "ring"}, spec).status();
      if (ranks > 1) EXPECT_THAT(std::string(refused.message()), HasSubstr("does not keep the canonical order"));
      const auto in_f32 = PlansOf(spec, 1, 1);
      spec.type = tensor::ElementType::kBF16;
      EXPECT_EQ(PlansOf(spec, 1, 1), in_f32);
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(CheckPlan, CanonicalPartialResultsOfSmallFloatsAreSentInF32) {
  CollectiveSpec spec = MakeCheckedSpec(CollectiveKind::kAllReduce, 8, 8000);
  spec.mode = ReductionMode::kCanonical;
  spec.type = tensor::ElementType::kBF16;
  const auto bytes = [&](const char* name) { return *WireBytes({.algorithm = name}, spec); };
  EXPECT_EQ(bytes("direct"), 2 * 7 * 1000 * 2);
  EXPECT_EQ(bytes("halving_doubling"), 2 * 7 * 1000 * 4);
  const CostTerms terms = *TermsOf({.algorithm = "halving_doubling"}, spec, 1);
  EXPECT_EQ(terms.sent_bytes, 2 * 7 * 1000 * 4);
  spec.reduction = Reduction::kMax;  // Partial results are exact.
  EXPECT_EQ(bytes("halving_doubling"), 2 * 7 * 1000 * 2);
  spec.reduction = Reduction::kSum;
  spec.mode = ReductionMode::kFast;
  EXPECT_EQ(bytes("halving_doubling"), 2 * 7 * 1000 * 2);
}

TEST(CheckPlan, AveragesDivideOnce) {
  CollectiveSpec spec = MakeCheckedSpec(CollectiveKind::kAllReduce, 8, 37);
  spec.reduction = Reduction::kAverage;
  for (const CollectivePlan& plan : PlansOf(spec, 1, 1)) {
    EXPECT_THAT(plan.algorithm, AnyOf(HasSubstr("direct"), HasSubstr("mapped")));
    EXPECT_TRUE(CheckPlan(plan, spec).ok());
  }
  const absl::Status refused = BuildSchedule({.algorithm = "ring"}, spec, 0).status();
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("would divide more than once; expected one of direct"), Not(HasSubstr("mapped_"))));
}

TEST(CheckPlan, GridsOrdersAndRaggedParts) {
  for (const char* const text : {"ring_2d grid=3x5", "ring_2d grid=15x1 channels=4", "ring_3d grid=3x1x5 channels=6",
                                 "hierarchical grid=5x3", "ring order=3,1,2,0,4,14,13,12,11,10,9,8,7,6,5",
                                 "ring_2d grid=5x3 chunks=3 channels=4 order=3,1,2,0,4,14,13,12,11,10,9,8,7,6,5"}) {
    const CollectivePlan plan = *ParsePlan(text);
    for (const CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
      const CollectiveSpec spec = MakeCheckedSpec(kind, 15, 77);
      if (plan.algorithm == "hierarchical" && kind != CollectiveKind::kAllReduce) continue;
      const absl::Status status = CheckPlan(plan, spec);
      EXPECT_TRUE(status.ok()) << text << " " << status;
    }
  }
  for (const char* const text :
       {"all_gather f32[21] over 4 ranks sizes 7,0,13,1", "reduce_scatter(sum) f32[21] over 4 ranks sizes 7,0,13,1",
        "gather f32[21] over 4 ranks root 2 sizes 7,0,13,1", "scatter f32[21] over 4 ranks root 3 sizes 7,0,13,1",
        "all_to_all f32[36] over 3 ranks sizes 1,2,3,4,0,6,7,8,5"}) {
    const CollectiveSpec spec = *ParseSpec(text);
    for (const CollectivePlan& plan : PlansOf(spec, 2, 2)) {
      const absl::Status status = CheckPlan(plan, spec);
      EXPECT_TRUE(status.ok()) << plan.ToString() << " " << status;
    }
  }
  EXPECT_EQ(CheckPlan(*ParsePlan("swing grid=4x8"), MakeCheckedSpec(CollectiveKind::kAllReduce, 32, 2048)),
            absl::OkStatus());
  EXPECT_THAT(
      std::string(
          CheckPlan(*ParsePlan("ring_2d grid=4x4"), MakeCheckedSpec(CollectiveKind::kAllReduce, 15, 7)).message()),
      HasSubstr("a grid of 2 dimensions with 15 ranks"));
}

TEST(CheckPlan, MoreThanTwoToThe31Elements) {
  for (int i = 0; i < kNumCollectiveKinds; ++i) {
    for (const int ranks : {2, 3, 5}) {
      for (const int64_t count : {(int64_t{1} << 31) + 1, (int64_t{1} << 33) + 3}) {
        const CollectiveSpec spec = MakeCheckedSpec(KindAt(i), ranks, count);
        for (const CollectivePlan& plan : PlansOf(spec, 3, 2)) {
          const absl::Status status = CheckPlan(plan, spec);
          EXPECT_TRUE(status.ok()) << plan.ToString() << " " << status;
        }
      }
    }
  }
}

TEST(CheckPlan, SeveralOperands) {
  for (int i = 0; i < kNumCollectiveKinds; ++i) {
    CollectiveSpec spec = MakeCheckedSpec(KindAt(i), 4, 3);
    if (KindAt(i) != CollectiveKind::kBarrier) spec.counts = {12, 0, 4, 8};
    const absl::StatusOr<CollectivePlan> plan = MakePlan(spec);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(CheckPlan(*plan, spec).ok()) << CheckPlan(*plan, spec);
  }
}

TEST(CheckPlan, FormulasAgreeWithTheLiterature) {
  const CollectiveSpec spec = MakeCheckedSpec(CollectiveKind::kAllReduce, 8, 8000);
  const auto bytes = [&](const char* name) { return *WireBytes({.algorithm = name}, spec); };
  const auto rounds = [&](const char* name) { return *Rounds({.algorithm = name}, spec); };
  for (const char* const name : {"ring", "direct", "ring_2d", "ring_3d", "halving_doubling", "swing", "hierarchical"}) {
    EXPECT_EQ(bytes(name), 2 * 7 * 1000 * 4) << name;
  }
  EXPECT_EQ(bytes("direct_one_shot"), 7 * 8000 * 4);
  EXPECT_EQ(bytes("double_binary_tree"), 4 * 4000 * 4);
  EXPECT_EQ(bytes("recursive_doubling"), 3 * 8000 * 4);
  EXPECT_EQ(rounds("ring"), 14);
  EXPECT_EQ(rounds("direct"), 2);
  EXPECT_EQ(rounds("ring_2d"), 8);
  EXPECT_EQ(rounds("ring_3d"), 6);
  EXPECT_EQ(rounds("double_binary_tree"), 6);
  EXPECT_EQ(rounds("recursive_doubling"), 3);
  EXPECT_EQ(rounds("halving_doubling"), 6);
  EXPECT_EQ(rounds("swing"), 6);
  // The default grid is 1 x 13.
  EXPECT_EQ(*Rounds({.algorithm = "ring_2d"}, MakeCheckedSpec(CollectiveKind::kAllReduce, 13, 13)), 24);
}

// Every algorithm also computes the correct results in random orders of events.
TEST(Interpret, AgreesWithTheChecker) {
  const std::unique_ptr<Random> random = SeededRandom(1);
  for (int round = 0; round < 300; ++round) {
    const CollectiveSpec spec = MakeCheckedSpec(KindAt(static_cast<int>(random->Below(kNumCollectiveKinds))),
                                                2 + static_cast<int>(random->Below(7)), random->Below(30));
    for (const CollectivePlan& plan :
         PlansOf(spec, 1 + static_cast<int>(random->Below(3)), 1 + static_cast<int>(random->Below(3)))) {
      const std::vector<Schedule> schedules = *BuildSchedules(plan, spec);
      for (int in_place = 0; in_place <= (schedules[0].in_place ? 1 : 0); ++in_place) {
        const InterpretOptions options{1 + static_cast<int>(random->Below(3)), in_place == 1, random->Below(2) == 0};
        const absl::Status status = Interpret(spec, schedules, options, random.get());
        ASSERT_TRUE(status.ok()) << plan.ToString() << " " << spec.ToString() << " " << in_place << ": " << status;
      }
    }
  }
}

TEST(CheckMutants, EveryMutantIsRejectedOrEquivalent) {
  const std::unique_ptr<Random> random = SeededRandom(7);
  MutationCounts all;
  for (int ranks : {2, 3, 4, 5, 6, 8}) {
    for (int i = 0; i < kNumCollectiveKinds; ++i) {
      const CollectiveSpec spec = MakeCheckedSpec(KindAt(i), ranks, 2 * ranks);
      for (const CollectivePlan& plan : PlansOf(spec, 1 + ranks % 2, 1 + ranks % 3)) {
        const absl::StatusOr<MutationCounts> counts =
            CheckMutants({spec, *BuildSchedules(plan, spec)}, CaseCount(20, 50), random.get());
        ASSERT_TRUE(counts.ok()) << plan.ToString() << " " << spec.ToString() << ": " << counts.status();
        all.mutants += counts->mutants;
        all.rejected += counts->rejected;
        all.equivalent += counts->equivalent;
      }
    }
  }
  EXPECT_GT(all.mutants, CaseCount(4000, 10000));
  EXPECT_EQ(all.mutants, all.rejected + all.equivalent);
  // The accepted mutants change unused fields or exchange independent operations.
  EXPECT_GT(all.rejected, 5 * all.equivalent) << all.rejected << " rejected, " << all.equivalent << " equivalent";
}

TEST(CheckSchedules, DeadlocksListTheWaitingRanks) {
  const CollectiveSpec spec = MakeCheckedSpec(CollectiveKind::kAllReduce, 3, 9);
  std::vector<Schedule> schedules = *BuildSchedules({.algorithm = "ring"}, spec);
  for (Schedule& schedule : schedules) std::swap(schedule.ops[0], schedule.ops[1]);
  const absl::Status status = CheckSchedules(spec, schedules).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("deadlock with slots=1: 3 of 3 ranks wait, rank 0 at operation 0"));
}

TEST(CheckSchedules, OneShotInPlaceDeadlocks) {
  const CollectiveSpec spec = MakeCheckedSpec(CollectiveKind::kAllReduce, 3, 9);
  std::vector<Schedule> schedules = *BuildSchedules({.algorithm = "direct_one_shot"}, spec);
  EXPECT_TRUE(CheckSchedules(spec, schedules).ok());
  for (Schedule& schedule : schedules) schedule.in_place = true;
  EXPECT_THAT(std::string(CheckSchedules(spec, schedules).status().message()), HasSubstr("in place deadlock"));
}

TEST(CheckSchedules, RefusesDifferentOrdersOnDifferentRanks) {
  const CollectiveSpec spec = MakeCheckedSpec(CollectiveKind::kAllReduce, 3, 4);
  std::vector<Schedule> schedules = *BuildSchedules({.algorithm = "direct_one_shot"}, spec);
  for (ScheduleOp& op : schedules[1].ops) std::reverse(op.sources.begin(), op.sources.end());
  EXPECT_THAT(std::string(CheckSchedules(spec, schedules).status().message()),
              HasSubstr("is reduced as (2 + 1 + 0), on rank 0 as (0 + 1 + 2)"));
}

// Without the first or the last signals between ranks 0 and 1, a window is accessed before its owner enters the
// collective or after it has left.
TEST(CheckSchedules, WindowsNeedEverySignal) {
  const CollectiveSpec spec = MakeCheckedSpec(CollectiveKind::kAllReduce, 3, 9);
  const std::vector<Schedule> schedules = *BuildSchedules({.algorithm = kMappedWindows}, spec);
  ASSERT_EQ(CheckSchedules(spec, schedules).status(), absl::OkStatus());
  for (const int flag : {0, 2}) {
    std::vector<Schedule> without = schedules;
    for (Schedule& schedule : without) {
      std::erase_if(schedule.ops, [&](const ScheduleOp& op) {
        return (op.kind == OpKind::kSignal || op.kind == OpKind::kWait) && op.flag == flag &&
               (schedule.rank == 0 ? op.peer == 1 : schedule.rank == 1 && op.peer == 0);
      });
    }
    EXPECT_THAT(std::string(CheckSchedules(spec, without).status().message()),
                HasSubstr(flag == 0 ? "in a race" : "after it has left the collective"));
  }
}

TEST(CheckSchedules, ChannelsRaceUnlessSignalsOrderThem) {
  const CollectiveSpec spec = *ParseSpec("all_reduce(sum) f32[1] over 1 ranks");
  const auto check = [&](absl::string_view middle) {
    const Schedule schedule = *ParseSchedule(
        absl::StrCat("schedule rank 0 of 1, input 1, output 1, scratch 1\ncopy ch0 scratch[0:1] = input[0:1]\n", middle,
                     "copy ch1 output[0:1] = scratch[0:1]\n"));
    return CheckSchedules(spec, {&schedule, 1}).status();
  };
  EXPECT_THAT(std::string(check("").message()), HasSubstr("in a race"));
  EXPECT_EQ(check("signal ->0 ch0 flag0\nwait <-0 ch1 flag0\n"), absl::OkStatus());
  EXPECT_THAT(std::string(check("wait <-0 ch1 flag0\n").message()), HasSubstr("deadlock"));
}

TEST(CheckSchedules, BarriersWaitForAllRanks) {
  const CollectiveSpec spec = MakeCheckedSpec(CollectiveKind::kBarrier, 4, 0);
  std::vector<Schedule> schedules = *BuildSchedules({.algorithm = "recursive_doubling"}, spec);
  for (Schedule& schedule : schedules) schedule.ops.resize(2);
  EXPECT_THAT(std::string(CheckSchedules(spec, schedules).status().message()),
              HasSubstr("may leave the barrier before rank"));
}

TEST(CheckSchedules, LargeCountsAreCheap) {
  const CollectiveSpec spec = MakeCheckedSpec(CollectiveKind::kAllReduce, 64, 1LL << 40);
  EXPECT_TRUE(CheckPlan({.algorithm = "ring"}, spec).ok());
}

}  // namespace
}  // namespace xlad::collectives
