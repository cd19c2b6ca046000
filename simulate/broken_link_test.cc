// Slices with broken links: collectives on groups with these links are slower, and wrong links are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulate/group.h"
#include "simulate/testing/slice_of.h"

namespace xlad::simulate {
namespace {

using collectives::CollectiveKind;
using ::testing::HasSubstr;

absl::StatusOr<double> UsOf(const Slice& slice, const GroupShape& shape) {
  GroupTimer timer(slice);
  XLAD_ASSIGN_OR_RETURN(const GroupTime* time, timer.TimeOf({CollectiveKind::kAllReduce, int64_t{1} << 22, shape}));
  return time->us;
}

TEST(BrokenLink, SlowsTheGroupsThatHaveIt) {
  const Slice whole = SliceOf("v5e-4x16");
  Slice broken = whole;
  ASSERT_TRUE(BreakLink("4-8", &broken).ok());  // The link from y = 1 to y = 2 at x = 0.
  const GroupShape along_y = {{1, 16, 1, true}}, along_x = {{0, 4, 1, false}},
                   all = {{0, 4, 1, false}, {1, 16, 1, true}};
  EXPECT_GT(*UsOf(broken, along_y), 1.2 * *UsOf(whole, along_y));
  EXPECT_EQ(*UsOf(broken, along_x), *UsOf(whole, along_x));
  EXPECT_GT(*UsOf(broken, all), *UsOf(whole, all));
}

TEST(BrokenLink, TheLinkAroundATorusCanBreak) {
  const Slice whole = SliceOf("v5e-2x16");
  Slice broken = whole;
  ASSERT_TRUE(BreakLink("0-30", &broken).ok());
  const GroupShape along_y = {{1, 16, 1, true}};
  EXPECT_GT(*UsOf(broken, along_y), 1.2 * *UsOf(whole, along_y));
}

TEST(BrokenLink, GroupsThatAreCutAreRefused) {
  Slice slice = SliceOf("v5e-4x4");
  ASSERT_TRUE(BreakLink("0-1", &slice).ok());
  const auto us = UsOf(slice, {{0, 4, 1, false}});
  EXPECT_EQ(us.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(us.status().message(), HasSubstr("group x4 of v5e-4x4"));
}

TEST(BrokenLink, LinksThatDoNotExistAreRefused) {
  Slice slice = SliceOf("v5e-4x4");
  for (const char* link : {"0-2", "0-5", "0", "a-b", "0-1-2", "0-99", "3-0"}) {
    EXPECT_EQ(BreakLink(link, &slice).code(), absl::StatusCode::kInvalidArgument) << link;
  }
  EXPECT_TRUE(slice.broken_links.empty());
}

}  // namespace
}  // namespace xlad::simulate
