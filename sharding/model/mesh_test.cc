#include "sharding/model/mesh.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "sharding/model/axes.h"
#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Mesh, ParsesAndPrints) {
  for (const char* text : {"dp=4,tp=2", "a=1", "x=3,y=5,z=7"}) {
    const auto mesh = ParseMesh(text);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->ToString(), text);
  }
  EXPECT_EQ(ParseMesh("")->ToString(), "single");
  EXPECT_EQ(ParseMesh("single")->devices(), 1);
}

TEST(Mesh, IsReadFromMessages) {
  struct Message {
    const std::string& name() const { return axis.name; }
    int64_t size() const { return axis.size; }
    Axis axis;
  };
  EXPECT_EQ(MeshFromWire(std::vector<Message>{{{"dp", 4}}, {{"tp", 2}}}), *ParseMesh("dp=4,tp=2"));
  EXPECT_EQ(MeshFromWire(std::vector<Message>()), Mesh());
}

TEST(Mesh, TheLargestMeshIsThatOfAProgram) {
  for (const int64_t devices : {int64_t{1} << 24, (int64_t{1} << 24) + 1, int64_t{1} << 32}) {
    auto module = hlo::ParseText("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }");
    ASSERT_TRUE(module.ok()) << module.status();
    (*module)->num_partitions = devices;
    EXPECT_EQ(ParseMesh(absl::StrCat("a=", devices)).ok(), hlo::Verify(**module).ok()) << devices;
  }
}

TEST(Mesh, RefusesMalformedTextWithFoundAndExpected) {
  const std::pair<const char*, const char*> cases[] = {{"dp", "expected AXIS=SIZE"},
                                                       {"dp=", "expected AXIS=SIZE"},
                                                       {"=4", "expected AXIS=SIZE"},
                                                       {"dp=0", "expected at least 1"},
                                                       {"dp=-2", "expected at least 1"},
                                                       {"dp=2,dp=2", "named twice"},
                                                       {"dp=4,,tp=2", "expected AXIS=SIZE"},
                                                       {"a=4294967296,b=4294967296", "at most 2^24"},
                                                       {"a=4096,b=4097", "at most 2^24"},
                                                       {"dp=2=3", "AXIS=SIZE"}};
  for (const auto& [text, message] : cases) {
    const auto mesh = ParseMesh(text);
    ASSERT_FALSE(mesh.ok()) << text;
    EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(mesh.status().message()), HasSubstr(message));
  }
}

TEST(Mesh, PositionsCountMajorToMinor) {
  const Mesh mesh("mesh", {{"a", 2}, {"b", 4}});
  EXPECT_EQ(mesh.Position(6, {mesh.Whole(0)}), 1);
  EXPECT_EQ(mesh.Position(6, {mesh.Whole(1)}), 2);
  EXPECT_EQ(mesh.Position(6, {mesh.Whole(1), mesh.Whole(0)}), 5);
  EXPECT_EQ(mesh.Position(6, {AxisRef{1, 1, 2}}), 1);
  EXPECT_EQ(mesh.Position(6, {AxisRef{1, 2, 2}}), 0);
  EXPECT_EQ(ToString(mesh, AxisList{mesh.Whole(0), AxisRef{1, 2, 2}}), "a,b:(2)2");
}

TEST(Mesh, GroupsCoverEveryDeviceOnceInOrderOfPosition) {
  const Mesh mesh("mesh", {{"a", 2}, {"b", 6}, {"c", 3}});
  const AxisList lists[] = {{},
                            {mesh.Whole(0)},
                            {mesh.Whole(2), mesh.Whole(0)},
                            {AxisRef{1, 1, 2}},
                            {AxisRef{1, 2, 3}, mesh.Whole(0)},
                            {mesh.Whole(0), mesh.Whole(1), mesh.Whole(2)}};
  for (const AxisList& axes : lists) {
    std::set<int64_t> seen;
    for (const std::vector<int64_t>& group : mesh.Groups(axes)) {
      ASSERT_EQ(std::ssize(group), ShardCount(axes));
      for (int64_t i = 0; i < std::ssize(group); ++i) {
        EXPECT_EQ(mesh.Position(group[i], axes), i);
        EXPECT_TRUE(seen.insert(group[i]).second);
      }
    }
    EXPECT_EQ(std::ssize(seen), mesh.devices());
  }
  EXPECT_THAT(Mesh("m", {{"a", 2}, {"b", 2}}).Groups({AxisRef{0, 1, 2}}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(Axes, ATensorIsSplitAlongAnAxisOrAPartOfIt) {
  TensorSharding sharding = TensorSharding::Replicated(2);
  sharding.dims[1].axes = {{0, 1, 2}};  // "x":(1)2
  sharding.replicated = {{1, 1, 4}};
  EXPECT_TRUE(SplitsDims(sharding, {0, 1, 4}));
  EXPECT_FALSE(SplitsDims(sharding, {0, 2, 2}));
  EXPECT_FALSE(SplitsDims(sharding, {1, 1, 4}));
}

// The replica groups expand to the groups of the mesh. They have the iota form unless the cuts of an axis do not nest.
TEST(Axes, ReplicaGroupsEqualTheMeshsGroups) {
  const Mesh mesh("mesh", {{"a", 2}, {"b", 6}, {"c", 4}});
  const AxisList lists[] = {{},
                            {mesh.Whole(0)},
                            {mesh.Whole(1)},
                            {mesh.Whole(2), mesh.Whole(0)},
                            {AxisRef{1, 1, 2}},
                            {AxisRef{1, 2, 3}, mesh.Whole(0)},
                            {AxisRef{2, 2, 2}, AxisRef{1, 1, 3}},
                            {AxisRef{1, 1, 2}, AxisRef{1, 3, 2}},  // Cuts at 2 and at 3 of b = 6 do not nest.
                            {mesh.Whole(0), mesh.Whole(1), mesh.Whole(2)}};
  for (const AxisList& axes : lists) {
    const hlo::ReplicaGroups groups = ReplicaGroupsOver(mesh, axes);
    EXPECT_EQ(groups.Expand(mesh.devices()), mesh.Groups(axes)) << ToString(mesh, axes);
    EXPECT_EQ(groups.iota.has_value(), axes.size() != 2 || axes[1].pre != 3) << ToString(mesh, axes);
  }
}

TEST(Axes, ReplicaGroupsOfALargeMeshAreSmall) {
  const Mesh mesh("mesh", {{"d", 256}, {"t", 256}});
  const hlo::ReplicaGroups groups = ReplicaGroupsOver(mesh, {mesh.Whole(0)});
  EXPECT_EQ(groups.iota->dims, (Dims{256, 256}));
  EXPECT_EQ(groups.iota->reshape_dims, (Dims{256, 256}));
  EXPECT_EQ(groups.iota->transpose, (Dims{1, 0}));
}

TEST(Axes, StridesDetermineAxes) {
  const Mesh mesh("mesh", {{"a", 4}, {"b", 2}});
  EXPECT_EQ(AxesOfStride(mesh, 4, 2), (AxisList{AxisRef{0, 1, 2}}));
  EXPECT_EQ(AxesOfStride(mesh, 1, 8), (AxisList{mesh.Whole(0), mesh.Whole(1)}));
  EXPECT_EQ(AxesOfStride(mesh, 1, 3), std::nullopt);
  EXPECT_EQ(AxesOfStride(mesh, 1, 16), std::nullopt);
}

// The boxes of all devices cover every element once, for even and uneven sizes.
TEST(TensorSharding, BoxesCoverEveryElementOnce) {
  const Mesh mesh("mesh", {{"a", 3}, {"b", 2}});
  for (int64_t size = 0; size <= 20; ++size) {
    TensorSharding sharding = TensorSharding::Open(2);
    sharding.dims[0].axes = {mesh.Whole(1), mesh.Whole(0)};
    const Dims dims = {size, 5};
    const Dims local = LocalDims(dims, sharding);
    EXPECT_EQ(local[0], (size + 5) / 6);
    std::vector<int> covered(size, 0);
    for (int64_t device = 0; device < mesh.devices(); ++device) {
      const tensor::Box box = BoxOf(dims, mesh, sharding, device);
      EXPECT_LE(box.hi[0] - box.lo[0], local[0]);
      EXPECT_EQ(box.lo[1], 0);
      EXPECT_EQ(box.hi[1], 5);
      for (int64_t i = box.lo[0]; i < box.hi[0]; ++i) ++covered[i];
    }
    for (const int count : covered) EXPECT_EQ(count, 1);
  }
}

TEST(TensorSharding, PrintsAsShardyDoes) {
  const Mesh mesh("mesh", {{"dp", 4}, {"tp", 2}});
  TensorSharding sharding = TensorSharding::Replicated(2);
  EXPECT_TRUE(sharding.IsReplicated());
  sharding.dims[0].axes = {AxisRef{0, 2, 2}};
  sharding.dims[1].closed = false;
  sharding.dims[1].priority = 1;
  sharding.replicated = {mesh.Whole(1)};
  sharding.unreduced = {AxisRef{0, 1, 2}};
  sharding.unreduced_reduction = hlo::Opcode::kMaximum;
  EXPECT_EQ(ToString(mesh, sharding), "[{\"dp\":(2)2}, {?}p1], replicated={\"tp\"}, unreduced=max{\"dp\":(1)2}");
  EXPECT_FALSE(sharding.IsReplicated());
}

TEST(Origin, ChainStartsAtTheNearestLink) {
  const auto annotation = std::make_shared<const Origin>(
      Origin{Origin::Kind::kAnnotation, "x", "annotated {\"dp\"} on dimension 0", "model.py:3 (f)", nullptr});
  const auto link = std::make_shared<const Origin>(
      Origin{Origin::Kind::kPropagated, "dot.1", "factor i of dot, from operand 0", "", annotation});
  EXPECT_THAT(Chain(link), ElementsAre("dot.1: factor i of dot, from operand 0",
                                       "x: annotated {\"dp\"} on dimension 0 (model.py:3 (f))"));
  EXPECT_TRUE(Chain(nullptr).empty());
}

}  // namespace
}  // namespace xlad::sharding
