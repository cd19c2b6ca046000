// Several slices: their topologies, hierarchical collectives, placements, permutations, and complete programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "hlo/read/read.h"
#include "hlo/testing/test_material.h"
#include "simulate/simulate.h"
#include "simulate/testing/slice_of.h"

namespace xlad::simulate {
namespace {

using collectives::CollectiveKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GroupTime TimeOf(const Slice& slice, CollectiveKind kind, int64_t bytes, const GroupShape& shape) {
  GroupTimer timer(slice);
  const auto time = timer.TimeOf({kind, bytes, shape});
  EXPECT_TRUE(time.ok()) << time.status();
  return time.ok() ? **time : GroupTime();
}

const GroupDimension kTwoSlices{2, 2, 1, false, true};  // The dimension of slices of a chip with two dimensions.

TEST(Slices, TheirNumberIsWrittenBeforeTheChip) {
  const Slice two = SliceOf("2xv5e-16x16");
  EXPECT_EQ(two.chips(), 512);
  EXPECT_EQ(two.slices(), 2);
  EXPECT_THAT(two.grid, ElementsAre(16, 16, 2));
  EXPECT_EQ(two.LetterOf(2), 's');
  EXPECT_FALSE(two.Wraps(2));
  EXPECT_EQ(two.Network().ranks(), 256);
  EXPECT_EQ(SliceOf("1xv5e-4x4").slices(), 1);
  // The name of this chip is "7x".
  EXPECT_EQ(SliceOf("7x-4x4x4").slices(), 1);
  EXPECT_EQ(SliceOf("3x7x-4x4x4").chips(), 192);
  const machine::Chip chip = *machine::BuiltInChip("v5e");
  EXPECT_EQ(ParseSlice("4xmine-4x4", chip)->chips(), 64);
  for (const char* const wrong :
       {"0xv5e-4x4", "-2xv5e-4x4", "2xv9-4x4", "2x-4x4", "2xv5e", "300xv5e-16x16", "99999999999xv5e-4x4", "xv5e-4x4"}) {
    EXPECT_FALSE(ParseSlice(wrong, std::nullopt).ok()) << wrong;
  }
}

TEST(Slices, NeedAChipWithFiguresOfTheNetworkBetweenThem) {
  EXPECT_THAT(std::string(ParseSlice("2xv2-4x4", std::nullopt).status().message()),
              HasSubstr("the file of chip v2 has no table [dcn]"));
}

// A collective of a group in one slice takes the same time even if there are other slices.
TEST(Slices, TimesOfGroupsInOneSliceDoNotDependOnTheOthers) {
  const GroupShape shape = {{0, 4, 1, false}, {1, 16, 1, true}};
  for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllToAll}) {
    const GroupTime one = TimeOf(SliceOf("v5e-4x16"), kind, 1 << 22, shape);
    const GroupTime two = TimeOf(SliceOf("2xv5e-4x16"), kind, 1 << 22, shape);
    EXPECT_EQ(one.us, two.us);
    EXPECT_EQ(two.dcn_us, 0);
    EXPECT_EQ(two.link_us.back(), 0);
  }
}

// Each phase takes the same time as without the other phases, and each chip sends its part of the bytes to the other
// slices.
TEST(Slices, CollectivesAreHierarchical) {
  const Slice slice = SliceOf("2xv5e-4x4");
  const GroupShape inside = {{0, 4, 1, false}, {1, 4, 1, false}};
  GroupShape all = inside;
  all.push_back(kTwoSlices);
  const int64_t bytes = int64_t{1} << 26;
  const auto us = [&](CollectiveKind kind, int64_t size, const GroupShape& shape) {
    return TimeOf(slice, kind, size, shape).us;
  };
  const double scatter = us(CollectiveKind::kReduceScatter, bytes, inside);
  const double gather = us(CollectiveKind::kAllGather, bytes, inside);
  const GroupTime reduce = TimeOf(slice, CollectiveKind::kAllReduce, bytes, all);
  const double across = us(CollectiveKind::kAllReduce, bytes / 16, {kTwoSlices});
  EXPECT_NEAR(reduce.us, scatter + across + gather, 1e-6);
  EXPECT_NEAR(reduce.dcn_us, across, 1e-9);
  EXPECT_THAT(reduce.plan, HasSubstr("all_reduce s2: "));
  // Half of a part is sent to the other slice, and half is sent back, each after one latency.
  const double part_us = static_cast<double>(bytes) / 16 / (slice.chip.dcn_bytes_per_s / 1e6);
  EXPECT_NEAR(across, part_us + 2 * slice.chip.dcn_latency_s * 1e6, 0.05 * across);
  EXPECT_NEAR(reduce.link_us[2], part_us, 0.05 * part_us);
  EXPECT_NEAR(us(CollectiveKind::kReduceScatter, bytes, all),
              scatter + us(CollectiveKind::kReduceScatter, bytes / 16, {kTwoSlices}), 1e-6);
  EXPECT_NEAR(us(CollectiveKind::kAllGather, bytes, all),
              gather + us(CollectiveKind::kAllGather, bytes / 16, {kTwoSlices}), 1e-6);
}

TEST(Slices, EveryKindHasATimeNoLessThanItsBound) {
  for (const int slices : {2, 3, 7, 64, 100}) {
    const Slice slice = SliceOf(absl::StrCat(slices, "xv5e-2x4").c_str());
    for (const CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
          CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
      for (const int64_t bytes : {1, 1 << 24}) {
        const GroupDimension across = {2, slices, 1, false, true};
        for (const GroupShape& shape : {GroupShape{across}, GroupShape{{1, 4, 1, false}, across}}) {
          const GroupTime time = TimeOf(slice, kind, bytes, shape);
          EXPECT_GE(time.us, slice.chip.dcn_latency_s * 1e6) << ToString(kind) << " " << ToString(shape);
          EXPECT_GE(time.us * 1.001, time.dcn_us);
          EXPECT_LT(time.us, 1e7);
        }
      }
    }
  }
}

// More than 1024 slices are not simulated: the time is the bound. The bound includes a latency, in which no link sends.
TEST(Slices, LinksOfManySlicesAreBusyExceptDuringTheLatency) {
  const Slice slice = SliceOf("2000xv5e-2x2");
  const GroupTime time = TimeOf(slice, CollectiveKind::kAllGather, 1 << 24, {{2, 2000, 1, false, true}});
  ASSERT_EQ(time.plan, "bound");
  const double sent_us = (1 << 24) * (1999.0 / 2000) / (slice.chip.dcn_bytes_per_s / 1e6);
  EXPECT_NEAR(time.link_us[2], sent_us, 1e-6 * sent_us);
  EXPECT_NEAR(time.us, sent_us + slice.chip.dcn_latency_s * 1e6, 1e-6 * sent_us);
}

TEST(Slices, TwiceTheRateHalvesWhatIsSentAcross) {
  Slice slice = SliceOf("4xv5e-4x4");
  const GroupShape across = {{2, 4, 1, false, true}};
  const double before = TimeOf(slice, CollectiveKind::kAllGather, 1 << 28, across).us;
  slice.chip.dcn_bytes_per_s *= 2;
  EXPECT_NEAR(before / TimeOf(slice, CollectiveKind::kAllGather, 1 << 28, across).us, 2, 0.01);
}

TEST(Slices, AnySliceCanHaveBrokenLinks) {
  Slice slice = SliceOf("2xv5e-4x4");
  EXPECT_TRUE(BreakLink("16-17", &slice).ok());
  EXPECT_THAT(slice.broken_links, ElementsAre(std::pair(0, 1)));
  for (const char* const wrong : {"15-16", "32-33", "0-16"}) EXPECT_FALSE(BreakLink(wrong, &slice).ok()) << wrong;
}

TEST(Slices, PermutationsUseTheConnectionsOfTheirChips) {
  const Slice slice = SliceOf("2xv5e-4x4");
  const collectives::Network network = slice.Network();
  const auto us = [&](const std::vector<ChipPair>& pairs) { return PermuteTime(pairs, 3'125'000, slice, network)->us; };
  const ChipPair across = {{0, 0, 0}, {3, 3, 1}};
  EXPECT_NEAR(us({across}), 10 + 1000, 1e-6);
  EXPECT_NEAR(us({across, {{1, 0, 0}, {0, 0, 1}}}), 10 + 1000, 1e-6);
  EXPECT_NEAR(us({across, {{1, 0, 0}, {3, 3, 1}}}), 10 + 2000, 1e-6);
  // The same links of two slices are different links.
  const ChipPair here = {{0, 0, 0}, {1, 0, 0}}, there = {{0, 0, 1}, {1, 0, 1}};
  EXPECT_NEAR(us({here, there}), us({here}), 1e-9);
}

// "How to Scale Your Model": 16.8 MB from one corner of 4 x 4 chips to the other take 188 us over two ports of 45 GB/s,
// and 6 us until the first byte.
TEST(PermuteTime, ChipsThatDifferInTwoDimensionsUseTwoPorts) {
  Slice slice = SliceOf("v5e-4x4");
  slice.chip.ici_bytes_per_s = 45e9;
  slice.chip.ici_launch_s = 0;
  EXPECT_NEAR(PermuteTime({{{0, 0}, {3, 3}}}, 16'777'216, slice, slice.Network())->us, 194, 0.05 * 194);
}

std::string Layers(const char* mesh) {
  const auto sharding = [](const char* dimensions) {
    return absl::StrCat("frontend_attributes={xla.sdy.sharding=\"#sdy.sharding<@mesh, [", dimensions, "]>\"}");
  };
  const std::string text =
      absl::StrReplaceAll(hlo::TestText("simulate/testdata/layers.hlo"), {{"MESH", mesh},
                                                                          {"LAYERS", "4"},
                                                                          {"XS", sharding(R"({\"dp\"}, {})")},
                                                                          {"AS", sharding(R"({}, {\"tp\"})")},
                                                                          {"BS", sharding(R"({\"tp\"}, {})")}});
  return absl::StrReplaceAll(
      text, {{"[B,W]", "[512,512]"}, {"[B,V]", "[512,2048]"}, {"[W,V]", "[512,2048]"}, {"[V,W]", "[2048,512]"}});
}

TEST(Slices, AProgramKeepsItsLargeCollectivesInsideOfSlices) {
  auto module = hlo::ReadModule(Layers(R"("dp"=2, "tp"=16)"));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto program = PrepareProgram(*std::move(module), {});
  ASSERT_TRUE(program.ok()) << program.status();
  const Slice slice = SliceOf("2xv5e-4x4");
  const auto best = Predict(*program, slice, "");
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_THAT(best->placement, HasSubstr("dp=s"));
  EXPECT_EQ(best->step.dcn_us, 0);
  EXPECT_EQ(best->step.link_us.size(), 3u);
  const auto across = Predict(*program, slice, "tp=x2ys,dp=x2");
  ASSERT_TRUE(across.ok()) << across.status();
  EXPECT_GT(across->step.dcn_us, 0);
  EXPECT_GT(across->step.us, best->step.us);
  EXPECT_THAT(across->step.collectives[0].group, HasSubstr("s2"));
}

}  // namespace
}  // namespace xlad::simulate
