// The text and hashes of schedules, specs and plans, and the choice of a plan.
#include "collectives/plan/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

CollectiveSpec AllReduce(int ranks, int64_t count) {
  CollectiveSpec spec;
  spec.reduction = Reduction::kSum;
  spec.ranks = ranks;
  spec.counts = {count};
  return spec;
}

TEST(Schedule, GoldenText) {
  const std::vector<Schedule> ring =
      *BuildSchedules({.algorithm = "ring", .chunks = 1, .channels = 1}, AllReduce(3, 7));
  EXPECT_EQ(Print(ring[0]), R"(schedule rank 0 of 3, input 7, output 7, scratch 0, in place
  send ->1 ch0 input[5:7]
  recv_reduce <-2 ch0 output[3:5] = input[3:5]
  send ->1 ch0 output[3:5]
  recv_reduce <-2 ch0 output[0:3] = input[0:3]
  send ->1 ch0 output[0:3]
  recv <-2 ch0 output[5:7]
  send ->1 ch0 output[5:7]
  recv <-2 ch0 output[3:5]
)");
  const std::vector<Schedule> direct =
      *BuildSchedules({.algorithm = "direct", .chunks = 1, .channels = 1}, AllReduce(3, 7));
  EXPECT_EQ(Print(direct[1]), R"(schedule rank 1 of 3, input 7, output 7, scratch 0, in place
  send ->2 ch0 input[5:7]
  send ->0 ch0 input[0:3]
  reduce_many ch0 output[3:5] = <-0 input[3:5] <-2
  send ->2 ch0 output[3:5]
  send ->0 ch0 output[3:5]
  recv <-0 ch0 output[0:3]
  recv <-2 ch0 output[5:7]
)");
}

TEST(Schedule, TextRoundTrips) {
  for (const Algorithm& algorithm : Algorithms()) {
    for (int ranks : {4, 6}) {
      const CollectiveSpec spec = AllReduce(ranks, 101);
      if (!Applies(algorithm, spec)) continue;
      const std::vector<Schedule> schedules = *BuildSchedules({.algorithm = std::string(algorithm.name),
                                                               .chunks = algorithm.uses_chunks ? 2 : 1,
                                                               .channels = algorithm.uses_channels ? 2 : 1},
                                                              spec);
      for (const Schedule& schedule : schedules) {
        const absl::StatusOr<Schedule> parsed = ParseSchedule(Print(schedule));
        ASSERT_TRUE(parsed.ok()) << parsed.status();
        EXPECT_EQ(Print(*parsed), Print(schedule));
        EXPECT_EQ(parsed->ops.size(), schedule.ops.size());
      }
    }
  }
}

TEST(Schedule, EveryOperationRoundTrips) {
  const std::string text = R"(schedule rank 1 of 4, input 10, output 10, scratch 5
  send ->2 ch1 input[0:3]
  recv <-0 ch0 output[0:3] output@2[4:7]
  recv_reduce <-3 ch2 output[7:10] scratch[0:3] = input[7:10]
  copy ch0 output@3[0:4] output[0:4] = input@2[6:10]
  reduce_many ch0 output[0:3] = <-0 input[0:3] input@2[0:3]
  reduce_tree ch4 output[0:3] output@0[0:3] = input[0:3] input@0[0:3] <-3
  zero ch0 output[0:3]
  signal ->0 ch0 flag3
  wait <-1 ch3 flag0
)";
  const absl::StatusOr<Schedule> parsed = ParseSchedule(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Print(*parsed), text);
  std::vector<int> windows;
  for (const ScheduleOp& op : parsed->ops) windows.push_back(NeedsWindows(op, 1));
  EXPECT_THAT(windows, ::testing::ElementsAre(0, 1, 0, 1, 1, 1, 0, 1, 0));
  const ScheduleSet set{AllReduce(2, 9), *BuildSchedules({.algorithm = "ring"}, AllReduce(2, 9))};
  const absl::StatusOr<ScheduleSet> again = ParseScheduleSet(Print(set));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->spec, set.spec);
  EXPECT_EQ(again->schedules, set.schedules);
  EXPECT_THAT(std::string(ParseScheduleSet("collective all_reduce(sum) f32[1] over 2 ranks").status().message()),
              HasSubstr("found 0, expected 2"));
}

TEST(Spec, TextRoundTrips) {
  for (const char* const text : {"all_reduce(avg) bf16[3,4] over 5 ranks canonical",
                                 "reduce(xor) u32[7] over 3 ranks root 2", "all_gather f32[6] over 3 ranks sizes 1,0,5",
                                 "all_to_all s8[10] over 2 ranks sizes 1,2,3,4", "barrier f32[0] over 7 ranks",
                                 "scatter f64[12] over 4 ranks root 1", "send_recv f32[3] over 4 ranks {0->1,2->0}"}) {
    const absl::StatusOr<CollectiveSpec> spec = ParseSpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->ToString(), text);
  }
  const auto message = [](absl::string_view text) { return std::string(ParseSpec(text).status().message()); };
  EXPECT_THAT(message("all_reduce(sum) f32[3]"), HasSubstr("expected text such as"));
  EXPECT_THAT(message("all_reduce(sums) f32[3] over 2 ranks"),
              HasSubstr("found reduction \"sums\", expected one of sum"));
  EXPECT_THAT(message("all_redux f32[3] over 2 ranks"), HasSubstr("found collective \"all_redux\""));
  EXPECT_THAT(message("all_gather f32[3] over 2 ranks root 1"), HasSubstr("the kind has no root"));
  EXPECT_THAT(message("all_gather f32[3] over 2 ranks sizes 1,1"), HasSubstr("expected one operand of 2 elements"));
}

TEST(Spec, SizesOfRaggedParts) {
  const CollectiveSpec spec = *ParseSpec("all_to_all f32[21] over 3 ranks sizes 0,1,2,3,4,5,6,0,0");
  EXPECT_EQ(spec.input_elements(1), 12);
  EXPECT_EQ(spec.output_elements(0), 9);
  EXPECT_EQ(spec.output_elements(2), 7);
}

TEST(CollectivePlan, TextRoundTrips) {
  for (const char* const text : {"ring chunks=1 channels=1", "ring_2d chunks=4 channels=2 grid=4x8 order=1,0,2,3",
                                 "binomial chunks=1 channels=1 radix=3 protocol=windows engine=nccl"}) {
    const absl::StatusOr<CollectivePlan> plan = ParsePlan(text);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->ToString(), text);
  }
  EXPECT_THAT(std::string(ParsePlan("ring chunk=2").status().message()), HasSubstr("found parameter \"chunk\""));
  EXPECT_THAT(std::string(ParsePlan("ring grid=4y4").status().message()), HasSubstr("parameter \"grid=4y4\""));
  EXPECT_THAT(std::string(ParsePlan("ring protocol=eager").status().message()),
              HasSubstr("found protocol \"eager\", expected slots, windows or board"));
}

// Whether the parameters of `change` change the schedule of any of 8 ranks, for any kind of collective that the
// algorithm runs.
bool ChangesSchedules(const Algorithm& algorithm, const CollectivePlan& change) {
  for (int kind = 1; kind <= kNumCollectiveKinds; ++kind) {
    const CollectiveSpec spec = MakeSpec(static_cast<CollectiveKind>(kind), 8, 512);
    if (!Applies(algorithm, spec) || !algorithm.refuses(change, spec).empty()) continue;
    for (int rank = 0; rank < spec.ranks; ++rank) {
      if (Print(algorithm.build(change, spec, rank)) != Print(algorithm.build({}, spec, rank))) return true;
    }
  }
  return false;
}

TEST(CollectivePlan, ParametersThatAnAlgorithmDoesNotUseAreRefused) {
  for (const Algorithm& algorithm : Algorithms()) {
    const auto changes = [&](const CollectivePlan& plan) { return ChangesSchedules(algorithm, plan); };
    EXPECT_EQ(algorithm.uses_chunks, changes({.chunks = 2})) << algorithm.name;
    EXPECT_EQ(algorithm.uses_channels, changes({.channels = 2})) << algorithm.name;
    EXPECT_EQ(algorithm.uses_grid, changes({.grid = {4, 2}}) || changes({.grid = {4, 2, 1}})) << algorithm.name;
    EXPECT_EQ(algorithm.uses_radix, changes({.radix = 3})) << algorithm.name;
  }
  for (const auto& [plan, expected] : std::vector<std::pair<const char*, const char*>>{
           {"ring grid=2x3",
            "found plan ring chunks=1 channels=1 grid=2x3 for all_reduce(sum) f32[64] over 6 ranks, "
            "expected no parameter grid: ring does not use it; the algorithms that use it are ring_2d, "},
           {"binomial radix=3",
            "expected no parameter radix: binomial does not use it; the algorithms that use it are k_nomial"},
           {"mapped_windows chunks=2", "expected no parameter chunks: mapped_windows does not use it"},
           {"mapped_slots channels=2", "expected no parameter channels: mapped_slots does not use it"}}) {
    EXPECT_THAT(std::string(BuildSchedule(*ParsePlan(plan), AllReduce(6, 64), 0).status().message()),
                HasSubstr(expected));
  }
  EXPECT_TRUE(BuildSchedule(*ParsePlan("ring_2d grid=2x3 chunks=2 channels=2"), AllReduce(6, 64), 0).ok());
}

TEST(Schedule, ErrorsHaveTheLine) {
  const auto message = [](absl::string_view text) { return std::string(ParseSchedule(text).status().message()); };
  EXPECT_THAT(message(""), HasSubstr("found no line"));
  EXPECT_THAT(message("schedule rank x of 2"), HasSubstr("line 1: found \"x\", expected \"NUMBER\""));
  const std::string head = "schedule rank 0 of 2, input 1, output 1, scratch 0\n";
  EXPECT_THAT(message(head + "\n  sned ->1"), HasSubstr("line 3: found \"sned\", expected send, recv"));
  EXPECT_THAT(message(head + "send ->1 ch0 input[3:1]"), HasSubstr("found \"input[3:1]\", expected a region"));
  EXPECT_THAT(message(head + "zero ch0 output[0:1] more"), HasSubstr("found \"more\", expected the end of the line"));
  EXPECT_THAT(message(head + "recv <-1"), HasSubstr("found the end of the line"));
}

TEST(Schedule, MutatedTextDoesNotCrash) {
  const std::unique_ptr<Random> random = SeededRandom(3);
  const std::string text =
      Print((*BuildSchedules({.algorithm = "direct", .chunks = 1, .channels = 1}, AllReduce(3, 7)))[0]);
  for (int i = 0; i < 5000; ++i) {
    std::string mutant = text;
    for (uint64_t k = 0; k <= random->Below(4); ++k) mutant[random->Below(mutant.size())] = random->Next();
    ParseSchedule(mutant).status().IgnoreError();
  }
}

TEST(Schedule, DifferentPlansHaveDifferentHashes) {
  std::set<uint64_t> hashes;
  int plans = 0;
  for (int ranks : {2, 3, 4, 8}) {
    for (int64_t count : {7, 8, 9}) {
      for (const Algorithm& algorithm : Algorithms()) {
        const CollectiveSpec spec = AllReduce(ranks, count);
        if (!Applies(algorithm, spec)) continue;
        hashes.insert(*ScheduleHash({.algorithm = std::string(algorithm.name), .chunks = 1, .channels = 1}, spec));
        ++plans;
      }
    }
  }
  EXPECT_EQ(hashes.size(), plans);
}

// The corrections favor chunks, and there are several directions: a defect of RankPlans could set parameters that an
// algorithm does not use.
TEST(RankPlans, EveryPlanCanBeBuilt) {
  CostModel costs;
  costs.parameters.windows = true;
  costs.parameters.directions = 4;
  for (const Algorithm& algorithm : Algorithms()) {
    const CollectivePlan chunks{.algorithm = std::string(algorithm.name), .chunks = 2};
    costs.corrections[CorrectionKey(chunks, AllReduce(8, 1))] = {{1, 0.5}};
  }
  int64_t plans = 0;
  for (const int64_t count : {1, 1000, 1000000}) {
    const absl::StatusOr<std::vector<PlanCost>> ranked = RankPlans(AllReduce(8, count), costs);
    ASSERT_TRUE(ranked.ok()) << ranked.status();
    for (const PlanCost& cost : *ranked) {
      const absl::Status built = BuildSchedule(cost.plan, AllReduce(8, count), 0).status();
      EXPECT_TRUE(built.ok()) << built;
      ++plans;
    }
  }
  EXPECT_GT(plans, 20);
}

TEST(MakePlan, FewRoundsForSmallSizesFewBytesForLarge) {
  EXPECT_EQ(MakePlan(AllReduce(8, 1))->algorithm, "direct_one_shot");
  const CollectiveSpec large = AllReduce(8, 85002);
  const CollectivePlan plan = *MakePlan(large);
  EXPECT_LE(*WireBytes(plan, large), 2 * 7 * ((85002 + 7) / 8) * 4);
  EXPECT_TRUE(MakePlan(AllReduce(1, 5)).ok());
  EXPECT_EQ(*WireBytes(*MakePlan(AllReduce(1, 5)), AllReduce(1, 5)), 0);
}

TEST(MakePlan, RefusesBadSpecs) {
  const auto message = [](const CollectiveSpec& spec) { return std::string(MakePlan(spec).status().message()); };
  CollectiveSpec spec = AllReduce(4, 6);
  spec.kind = CollectiveKind::kReduceScatter;
  EXPECT_THAT(message(spec), HasSubstr("found an operand of 6 elements on 4 ranks"));
  EXPECT_THAT(message(AllReduce(0, 6)), HasSubstr("found 0 ranks"));
  EXPECT_THAT(message(AllReduce(2, -1)), HasSubstr("an operand of -1 elements"));
  EXPECT_THAT(message(AllReduce(2, int64_t{1} << 61)), HasSubstr("2^62 bytes"));
  spec = AllReduce(2, 4);
  spec.reduction = Reduction::kOr;
  EXPECT_THAT(message(spec), HasSubstr("found or of f32"));
  spec.reduction = Reduction::kNone;
  EXPECT_THAT(message(spec), HasSubstr("reduction number 0"));
  spec = AllReduce(2, 4);
  spec.kind = static_cast<CollectiveKind>(17);
  EXPECT_THAT(message(spec), HasSubstr("kind number 17"));
  spec = AllReduce(3, 4);
  spec.kind = CollectiveKind::kCollectivePermute;
  spec.reduction = Reduction::kNone;
  spec.pairs = {{0, 1}, {2, 1}};
  EXPECT_THAT(message(spec), HasSubstr("pair 2 -> 1 and another pair with the same source or target"));
  EXPECT_THAT(
      std::string(
          BuildSchedules({.algorithm = "rign", .chunks = 1, .channels = 1}, AllReduce(2, 4)).status().message()),
      AllOf(HasSubstr("found collective algorithm \"rign\", expected one of direct, direct_one_shot, ring, "),
            HasSubstr("for ranks that map each other's memory, one of mapped_one_shot, mapped_slots, ")));
  EXPECT_THAT(
      std::string(
          BuildSchedules({.algorithm = "ring", .chunks = 0, .channels = 1}, AllReduce(2, 4)).status().message()),
      HasSubstr("chunks=0"));
}

}  // namespace
}  // namespace xlad::collectives
