// Plans that were computed by hand, and properties of random plans.
#include "sharding/partition/reshard_plan.h"

#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "sharding/testing/random_sharding.h"

namespace xlad::sharding {
namespace {

using Kind = ReshardStep::Kind;

// In "dp tp|", dimension 0 is split over dp and tp, and dimension 1 is not split. "dp:(1)2" is a sub-axis, and "+dp"
// after the last '|' an unreduced axis.
TensorSharding Parse(const Mesh& mesh, const std::string& text) {
  TensorSharding sharding = TensorSharding::Replicated(0);
  sharding.dims.emplace_back();
  std::string word;
  const auto axis = [&](std::string name) {
    AxisRef ref = mesh.Whole(0);
    const bool partial = name[0] == '+';
    if (partial) name = name.substr(1);
    const size_t colon = name.find(':');
    ref = mesh.Whole(*mesh.Find(name.substr(0, colon)));
    if (colon != std::string::npos) {
      ref.pre = std::stol(name.substr(colon + 2));
      ref.size = std::stol(name.substr(name.find(')') + 1));
    }
    (partial ? sharding.unreduced : sharding.dims.back().axes).push_back(ref);
  };
  for (char c : text + " ") {
    if (c != ' ' && c != '|') {
      word += c;
      continue;
    }
    if (!word.empty()) axis(word);
    word.clear();
    if (c == '|') sharding.dims.emplace_back();
  }
  return sharding;
}

std::string Describe(const Mesh& mesh, const ReshardPlan& plan) {
  static const char* const kNames[] = {"slice", "all-reduce", "reduce-scatter", "all-to-all", "permute", "all-gather"};
  return absl::StrJoin(plan.steps, "; ", [&](std::string* out, const ReshardStep& step) {
    absl::StrAppend(out, kNames[static_cast<int>(step.kind)], step.axes.empty() ? "" : " ", ToString(mesh, step.axes));
    if (step.from_dim >= 0) absl::StrAppend(out, " ", step.from_dim, "->", step.dim);
    else if (step.dim >= 0) absl::StrAppend(out, " @", step.dim);
  });
}

struct ReshardCase {
  const char* from;
  const char* to;
  const char* plan;
  double bytes;
};

TEST(PlanReshard, PlansEqualThoseMadeByHand) {
  const Mesh mesh = *ParseMesh("dp=4,tp=2");
  const tensor::Shape shape{tensor::ElementType::kF32, {16, 8}};  // 512 bytes.
  const ReshardCase cases[] = {
      {"|", "|", "", 0},
      {"|", "dp|tp", "slice dp @0; slice tp @1", 0},
      {"dp|", "|", "all-gather dp @0", 384},
      {"dp tp|", "dp|", "all-gather tp @0", 64},
      {"dp|", "|dp", "all-to-all dp 0->1", 96},
      {"dp|tp", "dp tp|", "all-to-all tp 1->0", 32},
      {"| +dp", "|", "all-reduce dp", 768},
      {"| +dp", "dp|", "reduce-scatter dp @0", 384},
      {"| +dp", "dp|tp", "slice tp @1; reduce-scatter dp @0", 192},
      {"|tp +dp", "|", "all-reduce dp; all-gather tp @1", 384 + 256},
      {"| +dp +tp", "tp|", "reduce-scatter tp @0; all-reduce dp", 256 + 384},
      {"dp:(1)2 tp|", "tp|dp:(1)2", "permute; all-to-all dp:(1)2 0->1", 128 + 64},
      {"tp|", "|tp", "all-to-all tp 0->1", 128},
      {"dp:(1)2|", "dp:(2)2|", "permute", 256},
      {"dp|", "dp tp|", "slice tp @0", 0},
      {"tp dp|", "dp tp|", "permute", 64},
  };
  for (const ReshardCase& c : cases) {
    const ReshardPlan plan = PlanReshard(mesh, shape, Parse(mesh, c.from), Parse(mesh, c.to));
    EXPECT_EQ(Describe(mesh, plan), c.plan) << c.from << " -> " << c.to;
    EXPECT_DOUBLE_EQ(plan.bytes, c.bytes) << c.from << " -> " << c.to;
  }
}

// If a size is not a multiple of the number of shards, an unsplit dimension is split in one step, and a split dimension
// whose shards do not nest is gathered completely.
TEST(PlanReshard, UnevenShardsAreGatheredAndSlicedAgain) {
  const Mesh mesh = *ParseMesh("dp=2,tp=2");
  const tensor::Shape shape{tensor::ElementType::kF32, {10}};
  EXPECT_EQ(Describe(mesh, PlanReshard(mesh, shape, Parse(mesh, ""), Parse(mesh, "dp tp"))), "slice dp,tp @0");
  EXPECT_EQ(Describe(mesh, PlanReshard(mesh, shape, Parse(mesh, "dp"), Parse(mesh, "dp tp"))),
            "all-gather dp @0; slice dp,tp @0");
  EXPECT_EQ(Describe(mesh, PlanReshard(mesh, shape, Parse(mesh, "dp tp"), Parse(mesh, "dp"))),
            "all-gather dp,tp @0; slice dp @0");
}

// The first 2 and the first 3 of an axis of 6 have no common cut.
TEST(PlanReshard, CutsThatDoNotNest) {
  const Mesh mesh = *ParseMesh("x=6");
  const tensor::Shape shape{tensor::ElementType::kF32, {12}};
  const ReshardPlan plan = PlanReshard(mesh, shape, Parse(mesh, "x:(1)2"), Parse(mesh, "x:(1)3"));
  EXPECT_EQ(Describe(mesh, plan), "all-gather x:(1)2 @0; slice x:(1)3 @0");
}

// Every plan ends with its target sharding, every step starts from the result of the previous one, and no plan sends
// more bytes than the complete array has with the padding of the first sharding.
TEST(PlanReshard, RandomPlansConnect) {
  for (const char* text : {"a=2,b=2,c=2", "a=4,b=2", "a=3,b=2", "a=8", "a=2,b=6"}) {
    const Mesh mesh = *ParseMesh(text);
    const std::unique_ptr<Random> random = SeededRandom(7);
    for (int i = 0; i < 2000; ++i) {
      const tensor::Shape shape{
          tensor::ElementType::kF32,
          {1 + static_cast<int64_t>(random->Below(17)), 1 + static_cast<int64_t>(random->Below(9)), 8}};
      const TensorSharding from = RandomSharding(mesh, 3, *random), to = RandomSharding(mesh, 3, *random);
      const ReshardPlan plan = PlanReshard(mesh, shape, from, to);
      DimensionAxes at = DimensionAxesOf(from);
      double bytes = 0;
      for (const ReshardStep& step : plan.steps) {
        for (size_t d = 0; d < 3; ++d) EXPECT_EQ(Merged(step.before[d]), Merged(at[d]));
        at = step.after;
        bytes += step.bytes;
      }
      for (size_t d = 0; d < 3; ++d) EXPECT_EQ(Merged(at[d]), Merged(to.dims[d].axes)) << text << " " << i;
      EXPECT_DOUBLE_EQ(bytes, plan.bytes);
      double padded = 4;
      for (size_t d = 0; d < 3; ++d) {
        const int64_t shards = ShardCount(from.dims[d].axes);
        padded *= static_cast<double>(ShardSize(shape.dims[d], shards) * shards);
      }
      EXPECT_LE(plan.bytes, padded);
    }
  }
}

}  // namespace
}  // namespace xlad::sharding
