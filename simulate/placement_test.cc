// Placements: every device has a chip of its own, texts round-trip, and wrong requests are refused.
#include "simulate/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "simulate/testing/slice_of.h"

namespace xlad::simulate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Slice, ParsesChipsAndSizes) {
  EXPECT_EQ(SliceOf("v5p-16x20x28").chips(), 8960);
  EXPECT_EQ(SliceOf("v5e-16x16").Network().links().size(), 1024u);
  EXPECT_EQ(SliceOf("v5e-4x4").Network().links().size(), 48u);
  machine::Chip chip = *machine::BuiltInChip("v5e");
  chip.name = "mine";
  EXPECT_EQ(ParseSlice("16x16", chip)->chip.name, "mine");
  EXPECT_EQ(ParseSlice("v5e-16x16", chip)->chip.name, "mine");
  for (const char* const wrong : {"", "v5e", "v5e-", "v5e-0x4", "v5e-4y4", "v5e-4x-4", "v5e-999999x999999", "16x16",
                                  "v5e-4x4x4", "v5p-4x4", "v9-4x4", "v5e-4x4 ", "v5e- 4x4", "v5e-+4x4"}) {
    EXPECT_FALSE(ParseSlice(wrong, std::nullopt).ok()) << wrong;
  }
  const auto error = [](const char* topology) {
    return std::string(ParseSlice(topology, std::nullopt).status().message());
  };
  EXPECT_THAT(error("v5e-4x4x4"), HasSubstr("of 3 dimensions, expected the 2 dimensions of chip v5e, such as v5e-8x8"));
  EXPECT_THAT(error("v5p-12"), HasSubstr("of 1 dimension, expected the 3 dimensions of chip v5p, such as v5p-2x2x3"));
  // The topologies that errors name are built.
  EXPECT_THAT(error("v5e-512"), HasSubstr("such as 2xv5e-16x16"));
  EXPECT_THAT(error("v2-512"), HasSubstr("such as v2-16x16"));
  EXPECT_THAT(error("2xv5e-4x4x4"), HasSubstr("such as 2xv5e-8x8"));
  EXPECT_THAT(error("16x16"), HasSubstr("found topology \"16x16\" without a chip"));
  EXPECT_EQ(ParseSlice("16x16", std::nullopt).status().code(), absl::StatusCode::kInvalidArgument);
}

struct Case {
  const char* mesh;
  const char* topology;
};
const Case kCases[] = {{"dp=4,tp=2", "v5e-2x4"},       {"dp=16", "v5e-4x4"},
                       {"a=2,b=3,c=5", "v5e-5x6"},     {"dp=8,tp=8", "v5p-4x4x4"},
                       {"dp=7,tp=1", "v5e-7x1"},       {"dp=2240,tp=4", "v5p-16x20x28"},
                       {"a=2,b=2,c=2,d=2", "v5e-4x4"}, {"dp=16,fsdp=4,tp=4", "v4-4x8x8"},
                       {"dp=2,fsdp=16", "2xv5e-4x4"},  {"dp=3,fsdp=4,tp=6", "3xv5p-2x3x4"}};

TEST(Placement, EveryDeviceHasAChipOfItsOwn) {
  for (const Case& c : kCases) {
    const sharding::Mesh mesh = *sharding::ParseMesh(c.mesh);
    const Slice slice = SliceOf(c.topology);
    const auto placements = ParsePlacements("", mesh, slice);
    ASSERT_TRUE(placements.ok()) << placements.status();
    std::set<std::string> texts;
    for (size_t p = 0; p < placements->size(); p += 1 + placements->size() / 8) {
      const Placement& placement = (*placements)[p];
      std::set<std::vector<int>> chips;
      for (int64_t device = 0; device < mesh.devices(); ++device) {
        const std::vector<int> chip = placement.ChipOf(device, mesh, slice);
        for (size_t d = 0; d < chip.size(); ++d) {
          ASSERT_GE(chip[d], 0);
          ASSERT_LT(chip[d], slice.grid[d]);
        }
        EXPECT_TRUE(chips.insert(chip).second) << c.mesh << " " << placement.ToString(mesh, slice);
      }
      EXPECT_TRUE(texts.insert(placement.ToString(mesh, slice)).second);
    }
  }
}

TEST(Placement, TextsRoundTrip) {
  for (const Case& c : kCases) {
    const sharding::Mesh mesh = *sharding::ParseMesh(c.mesh);
    const Slice slice = SliceOf(c.topology);
    const std::vector<Placement> placements = *ParsePlacements("", mesh, slice);
    for (const Placement& placement : placements) {
      const std::string text = placement.ToString(mesh, slice);
      const auto again = ParsePlacements(text, mesh, slice);
      ASSERT_TRUE(again.ok()) << text << ": " << again.status();
      ASSERT_EQ(again->size(), 1u) << text;
      EXPECT_EQ((*again)[0].axes, placement.axes) << text;
    }
  }
}

TEST(Placement, AssignmentsRestrictTheDimensions) {
  const sharding::Mesh mesh = *sharding::ParseMesh("dp=2240,tp=4");
  const Slice slice = SliceOf("v5p-16x20x28");
  const std::vector<Placement> on_z = *ParsePlacements("tp=z,dp=xyz", mesh, slice);
  ASSERT_EQ(on_z.size(), 1u);
  EXPECT_EQ(on_z[0].ToString(mesh, slice), "tp=z4,dp=xyz7");
  EXPECT_EQ(on_z[0].ChipOf(1, mesh, slice), (std::vector<int>{0, 0, 1}));
  // If dp is inner to tp on dimension z, the devices of a tp group are 7 chips apart.
  EXPECT_EQ((*ParsePlacements("dp=xyz7,tp=z4", mesh, slice))[0].ChipOf(1, mesh, slice), (std::vector<int>{0, 0, 7}));
  EXPECT_GT(ParsePlacements("", mesh, slice)->size(), 5u);
}

TEST(Placement, WrongAssignmentsAreRefused) {
  const sharding::Mesh mesh = *sharding::ParseMesh("dp=4,tp=4");
  const Slice slice = SliceOf("v5e-4x4");
  for (const char* const wrong :
       {"tp", "tp=", "tp=w", "tp=z", "xx=y", "tp=x,tp=y", "tp=x0", "tp=x99999999999", ",", "tp=x=", "tp=x2x2",
        "tp=xyx"}) {
    EXPECT_THAT(std::string(ParsePlacements(wrong, mesh, slice).status().message()),
                HasSubstr("expected axes of the mesh dp=4,tp=4"))
        << wrong;
  }
  EXPECT_THAT(std::string(ParsePlacements("tp=x,dp=x", mesh, slice).status().message()),
              AllOf(HasSubstr("found no placement"), HasSubstr("x has size 4, y has size 4")));
  EXPECT_THAT(std::string(ParsePlacements("", *sharding::ParseMesh("dp=8"), slice).status().message()),
              AllOf(HasSubstr("mesh dp=8 of 8 devices"), HasSubstr("has chips: 16")));
}

}  // namespace
}  // namespace xlad::simulate
