// Times of collectives among groups: shapes, agreement with the simulation of all ranks, bounds, published figures.
#include "simulate/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/plan/plan.h"
#include "collectives/plan/simulate.h"
#include "simulate/testing/slice_of.h"

namespace xlad::simulate {
namespace {

using collectives::CollectiveKind;
using ::testing::HasSubstr;

GroupShape WholeShape(const Slice& slice) {
  GroupShape shape;
  for (int d = 0; d < std::ssize(slice.grid); ++d) {
    if (slice.grid[d] > 1) shape.push_back({d, slice.grid[d], 1, slice.grid[d] > 2 && slice.Wraps(d)});
  }
  return shape;
}

double UsOf(const GroupCollective& collective, const Slice& slice) {
  GroupTimer timer(slice);
  const auto time = timer.TimeOf(collective);
  EXPECT_TRUE(time.ok()) << time.status();
  return time.ok() ? (*time)->us : 0;
}

TEST(GroupShape, IsThatOfItsChips) {
  const Slice slice = SliceOf("v5p-16x20x28");
  std::vector<std::vector<int>> chips;
  for (int x = 0; x < 16; x += 4) {
    for (int y = 0; y < 20; ++y) chips.push_back({x, y, 3});
  }
  EXPECT_EQ(ShapeOf(chips, slice), (GroupShape{{0, 4, 4, true}, {1, 20, 1, true}}));
  EXPECT_EQ(ToString(ShapeOf(chips, slice)), "x4/4 y20");
  EXPECT_EQ(ShapeOf({{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {3, 0, 0}}, slice), (GroupShape{{0, 4, 1, false}}));
  EXPECT_TRUE(ShapeOf({{1, 2, 3}}, slice).empty());
  // Three corners of a square do not form a grid.
  EXPECT_EQ(RanksOf(ShapeOf({{0, 0, 0}, {1, 0, 0}, {0, 1, 0}}, slice)), 3);
}

TEST(GroupTimer, IsNoSlowerThanASimulationOfAllRanks) {
  for (const char* const topology : {"v5e-16x4", "v4-4x4x4", "v4-4x8x1", "v5e-4x4", "v5e-1x7", "v5p-2x4x4"}) {
    const Slice slice = SliceOf(topology);
    for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather}) {
      for (const int64_t bytes : {int64_t{1} << 10, int64_t{1} << 24}) {
        const GroupCollective collective{kind, bytes, WholeShape(slice)};
        const double us = UsOf(collective, slice);
        const int dimensions = static_cast<int>(collective.shape.size());
        collectives::CollectivePlan plan{.algorithm = "ring", .channels = 2 * dimensions};
        const collectives::Network all_links = slice.Network();
        if (!all_links.IsSymmetric()) plan.channels = dimensions;
        if (dimensions > 1) {
          plan.algorithm = absl::StrCat("ring_", dimensions, "d");
          for (const GroupDimension& d : collective.shape) plan.grid.push_back(d.size);
        }
        std::vector<collectives::TorusDimension> links;
        for (const GroupDimension& d : collective.shape) {
          links.push_back({d.size, d.wraps, 1, slice.chip.ici_bytes_per_s / 1e9});
        }
        collectives::CollectiveSpec spec;
        spec.kind = kind;
        spec.ranks = slice.chips();
        spec.type = tensor::ElementType::kU8;
        if (Reduces(kind)) spec.reduction = collectives::Reduction::kSum;
        const int64_t part = (bytes + spec.ranks - 1) / spec.ranks;
        spec.counts = {kind == CollectiveKind::kAllGather ? part : part * spec.ranks};
        const auto all = collectives::Simulate(plan, spec, collectives::Network::Torus(links, 5));
        ASSERT_TRUE(all.ok()) << all.status();
        EXPECT_LE(us, all->time_us * 1.05) << topology << " " << bytes;
        // The chips at the ends of a mesh have fewer links than the others. The bound ignores this and counts one link
        // per dimension for every chip.
        if (bytes > (1 << 20)) EXPECT_GE(us, BoundUs(collective, slice) * 0.45) << topology;
      }
    }
  }
}

// A group whose members are s chips apart shares its links with s - 1 other groups.
TEST(GroupTimer, InterleavedGroupsShareTheirLinks) {
  const Slice slice = SliceOf("v5p-16x20x28");
  const int64_t bytes = int64_t{1} << 28;
  const double apart = UsOf({CollectiveKind::kAllGather, bytes, {{0, 4, 4, true}}}, slice);
  const double near = UsOf({CollectiveKind::kAllGather, bytes, {{0, 4, 1, true}}}, slice);
  EXPECT_NEAR(apart / near, 4, 0.2);
}

// The groups along one dimension whose sizes and strides are powers of two, and the group of one chip.
std::vector<GroupShape> ShapesAlong(int d, const Slice& slice) {
  std::vector<GroupShape> shapes = {{}};
  for (int size = 2; size <= slice.grid[d]; size *= 2) {
    for (int stride = 1; size * stride <= slice.grid[d]; stride *= 2) {
      shapes.push_back({{d, size, stride, size > 2 && slice.Wraps(d) && size * stride == slice.grid[d]}});
    }
  }
  return shapes;
}

// A broken link along a dimension that a group does not use changes nothing. On a slice with broken links, no groups
// share a simulation.
TEST(GroupTimer, SharedSimulationsAreThoseOfEachGroup) {
  const Slice whole = SliceOf("v4-2x4x4");
  const char* const links[] = {"0-1", "0-2", "0-8"};
  GroupTimer shares(whole);
  for (int unused = 0; unused < 3; ++unused) {
    Slice broken = whole;
    ASSERT_TRUE(BreakLink(links[unused], &broken).ok());
    GroupTimer simulates(broken);
    for (const GroupShape& first : ShapesAlong(unused == 0 ? 1 : 0, whole)) {
      for (GroupShape shape : ShapesAlong(unused == 2 ? 1 : 2, whole)) {
        shape.insert(shape.begin(), first.begin(), first.end());
        for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kAllToAll}) {
          const auto time = shares.TimeOf({kind, 1 << 16, shape}), expected = simulates.TimeOf({kind, 1 << 16, shape});
          ASSERT_TRUE(time.ok() && expected.ok()) << time.status() << expected.status();
          EXPECT_EQ((*time)->us, (*expected)->us) << ToString(kind) << " " << ToString(shape);
          EXPECT_EQ((*time)->plan, (*expected)->plan) << ToString(shape);
          EXPECT_EQ((*time)->link_us, (*expected)->link_us) << ToString(shape);
        }
      }
    }
  }
}

TEST(GroupTimer, ThePlanHasTheDimensionsOfTheGroup) {
  const Slice slice = SliceOf("v5e-4x8");
  GroupTimer timer(slice);
  const auto time = timer.TimeOf({CollectiveKind::kAllGather, 1 << 24, WholeShape(slice)});
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_THAT((*time)->plan, HasSubstr("grid=4x8"));
}

TEST(GroupTimer, OneDeviceTakesNoTime) {
  const Slice slice = SliceOf("v5e-4x4");
  EXPECT_EQ(UsOf({CollectiveKind::kAllReduce, 1 << 20, {}}, slice), 0);
}

TEST(GroupTimer, EveryKindAndSizeHasATime) {
  const Slice slice = SliceOf("v5p-16x20x28");
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
        CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
    for (const GroupShape& shape : {GroupShape{{0, 2, 1, false}}, GroupShape{{0, 7, 1, false}},
                                    GroupShape{{1, 20, 1, true}}, GroupShape{{0, 4, 1, false}, {1, 20, 1, true}},
                                    GroupShape{{0, 4, 4, true}, {1, 20, 1, true}, {2, 28, 1, true}}}) {
      for (const int64_t bytes : {int64_t{RanksOf(shape) > 64 ? 1 : 0}, int64_t{1} << 26}) {
        const double us = UsOf({kind, bytes, shape}, slice);
        EXPECT_GE(us, 5) << ToString(kind) << " " << ToString(shape);
        EXPECT_LT(us, 1e6) << ToString(kind) << " " << ToString(shape);
      }
    }
  }
}

// "How to Scale Your Model": a gather of little data along dimensions that wrap around takes the latency of half of the
// chips of each dimension.
TEST(GroupTimer, LittleDataTakesTheLatencyOfTheFarthestChip) {
  for (const char* const topology : {"v5e-1x16", "v5e-16x16", "v4-4x4x4", "v4-8x8x8", "v4-4x8x16"}) {
    const Slice slice = SliceOf(topology);
    double hops = 0;
    for (const int size : slice.grid) hops += size / 2;
    const double latency_us = (slice.chip.ici_launch_s + hops * slice.chip.ici_hop_s) * 1e6;
    for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
      EXPECT_NEAR(UsOf({kind, 4096, WholeShape(slice)}, slice), latency_us, 1) << topology << " " << ToString(kind);
    }
    EXPECT_LE(UsOf({CollectiveKind::kAllReduce, 4096, WholeShape(slice)}, slice),
              latency_us + hops * slice.chip.ici_hop_s * 1e6 + 2)
        << topology;
  }
}

// On tori, no size takes much longer than the bytes and the latency together.
TEST(GroupTimer, EverySizeIsNearItsBound) {
  for (const char* const topology : {"v5e-1x16", "v5e-16x16", "v4-4x4x4", "v4-4x8x16"}) {
    const Slice slice = SliceOf(topology);
    double before_us = 0;
    for (int64_t bytes = 1 << 10; bytes <= int64_t{1} << 28; bytes *= 4) {
      const GroupCollective gather{CollectiveKind::kAllGather, bytes, WholeShape(slice)};
      const double us = UsOf(gather, slice);
      EXPECT_LE(us, 2.2 * BoundUs(gather, slice)) << topology << " " << bytes;
      EXPECT_GE(us, before_us) << topology << " " << bytes;
      before_us = us;
    }
  }
}

// "How to Scale Your Model": an AllGather of 34 MB on a 4 x 4 slice of v5e takes 680 us.
TEST(GroupTimer, PublishedAllGather) {
  const Slice slice = SliceOf("v5e-4x4");
  EXPECT_NEAR(UsOf({CollectiveKind::kAllGather, 34'000'000, WholeShape(slice)}, slice), 680, 68);
}

TEST(PermuteTime, TheMostUsedLinkDecides) {
  const Slice slice = SliceOf("v5e-16x16");
  const collectives::Network network = slice.Network();
  std::vector<ChipPair> shift;
  for (int x = 0; x < 16; ++x) shift.push_back({{x, 0}, {(x + 1) % 16, 0}});
  EXPECT_NEAR(PermuteTime(shift, 50'000'000, slice, network)->us, 5 + 1 + 1000, 1e-6);
  EXPECT_NEAR(PermuteTime({{{0, 0}, {3, 0}}, {{1, 0}, {4, 0}}}, 50'000'000, slice, network)->us, 5 + 3 + 2000, 1e-6);
  EXPECT_EQ(PermuteTime({{{2, 2}, {2, 2}}}, 50'000'000, slice, network)->us, 0);
}

}  // namespace
}  // namespace xlad::simulate
