// Slices with broken chips: the part of the slice that is used, its rings, and its broken links.
#include "simulate/broken_chips.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulate/group.h"
#include "simulate/testing/slice_of.h"

namespace xlad::simulate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Slice Cut(const char* topology, const std::vector<std::string>& chips, const char* broken_link = nullptr) {
  Slice slice = SliceOf(topology);
  if (broken_link != nullptr) EXPECT_TRUE(BreakLink(broken_link, &slice).ok());
  const absl::Status status = CutAround(chips, &slice);
  EXPECT_TRUE(status.ok()) << status;
  return slice;
}

TEST(BrokenChips, TheLargestBoxIsUsed) {
  // Chip 5 of a mesh of 4 x 8 chips is at x = 1, y = 1.
  EXPECT_EQ(Cut("v5e-4x8", {"5"}).name, "v5e-4x6 of v5e-4x8");
  // Chip 17 is at x = 1, y = 4. Boxes of 2 x 8 and 4 x 4 chips do not contain it.
  EXPECT_THAT(Cut("v5e-4x8", {"17"}).grid, ElementsAre(2, 8));
  EXPECT_THAT(Cut("v5e-4x4", {"0"}).grid, ElementsAre(3, 4));
  EXPECT_THAT(Cut("v5e-4x4", {"0", "0"}).grid, ElementsAre(3, 4));
  EXPECT_THAT(Cut("v5e-2x2", {"0", "3"}).grid, ElementsAre(1, 1));
  EXPECT_THAT(Cut("v4-2x2x2", {"7"}).grid, ElementsAre(1, 2, 2));
  EXPECT_THAT(Cut("v5e-4x4", {}).name, "v5e-4x4");
}

TEST(BrokenChips, ABoxMayContainTheLinkThatClosesARing) {
  const Slice slice = Cut("v5e-16x16", {"136"});  // x = 8, y = 8
  EXPECT_THAT(slice.grid, ElementsAre(15, 16));
  EXPECT_FALSE(slice.Wraps(0));
  EXPECT_TRUE(slice.Wraps(1));
  // Chips 32 and 36 are at y = 8 and y = 9. The other 14 rows are connected by the link from y = 15 to y = 0.
  EXPECT_THAT(Cut("v5e-4x16", {"32", "36"}).grid, ElementsAre(4, 14));
}

TEST(BrokenChips, ADimensionWithFewerChipsDoesNotWrapAround) {
  // Dimensions of v4 are rings if their size is a multiple of 4, but four of eight chips are a line.
  const Slice slice = Cut("v4-1x1x8", {"0", "5"});
  EXPECT_THAT(slice.grid, ElementsAre(1, 1, 4));
  EXPECT_FALSE(slice.Wraps(2));
  EXPECT_TRUE(SliceOf("v4-1x1x4").Wraps(2));
}

TEST(BrokenChips, AllSlicesAreCutInTheSameWay) {
  const Slice slice = Cut("2xv5e-4x4", {"16"});  // Chip 0 of the second slice.
  EXPECT_THAT(slice.grid, ElementsAre(3, 4, 2));
  EXPECT_EQ(slice.name, "2xv5e-3x4 of 2xv5e-4x4");
  EXPECT_EQ(slice.chips(), 24);
}

TEST(BrokenChips, BrokenLinksGetTheNumbersOfTheBox) {
  EXPECT_THAT(Cut("v5e-4x4", {"0"}, "5-9").broken_links, ElementsAre(std::pair(3, 6)));
  EXPECT_TRUE(Cut("v5e-4x4", {"0"}, "0-4").broken_links.empty());
  // The link that closes the ring of y is inside the box, whose first row is y = 3.
  EXPECT_THAT(Cut("v5e-2x16", {"4"}, "0-30").broken_links, ElementsAre(std::pair(26, 24)));
}

TEST(BrokenChips, CollectivesOfTheBoxTakeLonger) {
  const auto us = [](const Slice& slice) {
    GroupTimer timer(slice);
    const GroupShape along_y = {{1, slice.grid[1], 1, slice.Wraps(1)}};
    return (*timer.TimeOf({collectives::CollectiveKind::kAllReduce, int64_t{1} << 22, along_y}))->us;
  };
  EXPECT_GT(us(Cut("v5e-2x16", {"4"})), 1.5 * us(SliceOf("v5e-2x16")));
}

TEST(BrokenChips, WrongChipsAreRefused) {
  Slice slice = SliceOf("v5e-2x2");
  for (const char* chip : {"4", "-1", "x", "", "0-1", "1.5"}) {
    const absl::Status status = CutAround({chip}, &slice);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(chip), HasSubstr("expected a number from 0 to 3")));
  }
  EXPECT_THAT(CutAround({"0", "1", "2", "3"}, &slice).message(), HasSubstr("found only broken chips"));
  EXPECT_THAT(CutAround(std::vector<std::string>(17, "0"), &slice).message(), HasSubstr("expected at most 16"));
  EXPECT_EQ(slice.name, "v5e-2x2");
  EXPECT_THAT(slice.grid, ElementsAre(2, 2));
}

}  // namespace
}  // namespace xlad::simulate
