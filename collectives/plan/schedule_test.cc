// The text and hashes of schedules, specs and plans.
#include "collectives/plan/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/cost.h"

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
  const std::vector<Schedule> ring = *BuildSchedules({"ring", 1, 1}, AllReduce(3, 7));
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
  const std::vector<Schedule> direct = *BuildSchedules({"direct", 1, 1}, AllReduce(3, 7));
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
      if (!algorithm.applies(spec)) continue;
      const std::vector<Schedule> schedules = *BuildSchedules({std::string(algorithm.name), 2, 2}, spec);
      for (const Schedule& schedule : schedules) {
        const absl::StatusOr<Schedule> parsed = ParseSchedule(Print(schedule));
        ASSERT_TRUE(parsed.ok()) << parsed.status();
        EXPECT_EQ(Print(*parsed), Print(schedule));
        EXPECT_EQ(parsed->ops.size(), schedule.ops.size());
      }
    }
  }
}

TEST(Schedule, ErrorsHaveTheLine) {
  const auto message = [](absl::string_view text) { return std::string(ParseSchedule(text).status().message()); };
  EXPECT_THAT(message(""), HasSubstr("found no line"));
  EXPECT_THAT(message("schedule rank x of 2"), HasSubstr("line 1: found \"x\", expected \"NUMBER\""));
  const std::string head = "schedule rank 0 of 2, input 1, output 1, scratch 0\n";
  EXPECT_THAT(message(head + "\n  sned ->1"), HasSubstr("line 3: found \"sned\", expected send, recv"));
  EXPECT_THAT(message(head + "send ->1 ch0 input[3:1]"), HasSubstr("found \"input[3:1]\", expected a region"));
  EXPECT_THAT(message(head + "zero output[0:1] more"), HasSubstr("found \"more\", expected the end of the line"));
  EXPECT_THAT(message(head + "recv <-1"), HasSubstr("found the end of the line"));
}

TEST(Schedule, MutatedTextDoesNotCrash) {
  const std::unique_ptr<Random> random = SeededRandom(3);
  const std::string text = Print((*BuildSchedules({"direct", 1, 1}, AllReduce(3, 7)))[0]);
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
        if (!algorithm.applies(spec)) continue;
        hashes.insert(*ScheduleHash({std::string(algorithm.name), 1, 1}, spec));
        ++plans;
      }
    }
  }
  EXPECT_EQ(hashes.size(), plans);
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
  EXPECT_THAT(std::string(BuildSchedules({"rign", 1, 1}, AllReduce(2, 4)).status().message()),
              HasSubstr("found collective algorithm \"rign\", expected one of direct"));
  EXPECT_THAT(std::string(BuildSchedules({"ring", 0, 1}, AllReduce(2, 4)).status().message()), HasSubstr("chunks=0"));
}

}  // namespace
}  // namespace xlad::collectives
