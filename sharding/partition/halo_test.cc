// Windows, moves and their halos along split dimensions: programs with random windows, sizes and numbers of shards are
// compared with their source programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "sharding/partition/halo_plan.h"
#include "sharding/partition/ops/families.h"
#include "sharding/proof/check_structure.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

constexpr char kComputations[] = R"(HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
argmax { v = f32[] parameter(0) i = s32[] parameter(1) w = f32[] parameter(2) j = s32[] parameter(3)
  gt = pred[] compare(v, w), direction=GT
  eq = pred[] compare(v, w), direction=EQ
  less = pred[] compare(i, j), direction=LT
  both = pred[] and(eq, less)
  take = pred[] or(gt, both)
  x = f32[] select(take, v, w)
  y = s32[] select(take, i, j)
  ROOT t = (f32[], s32[]) tuple(x, y) }
lt { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }
ge { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=GE }
)";

// A program of one op or a few. `operands` has the split dimension of each parameter, and `result` that of the root; -1
// if the array is replicated. Other arrays are split like parameter 0; scalars and elements of tuples are replicated.
// `second_operand` and `second_result` are the dimensions of parameter 0 and of the root that a second axis splits.
struct SplitOp {
  std::string body;
  std::vector<int> operands;
  int result = -1;
  int second_operand = -1, second_result = -1;  // -1 if there is no second axis.
};

class Halo : public testing::Test {
 protected:
  int64_t Pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_->Below(static_cast<uint64_t>(high - low + 1)));
  }

  static TensorSharding Split(int64_t ndim, int dim, int second) {
    TensorSharding sharding = TensorSharding::Replicated(ndim);
    if (dim >= 0) sharding.dims[dim].axes = {AxisRef{0, 1, shards_}};
    if (second >= 0) sharding.dims[second].axes = {AxisRef{1, 1, 2}};
    for (DimensionSharding& dimension : sharding.dims) dimension.origins.resize(dimension.axes.size());
    return sharding;
  }

  // Returns the number of elements that a device sends in permutes, or nullopt if there are other collectives or if the
  // program could not be partitioned and run.
  std::optional<int64_t> RunCase(const SplitOp& c, int64_t shards) {
    shards_ = shards;
    const bool second = c.second_operand >= 0;
    const Mesh mesh("mesh", second ? std::vector<Axis>{{"x", shards}, {"y", 2}} : std::vector<Axis>{{"x", shards}});
    const std::string text = absl::StrCat(kComputations, "ENTRY main {\n", c.body, "}\n");
    SCOPED_TRACE(absl::StrCat(text, shards, " shards"));
    absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(text);
    EXPECT_TRUE(module.ok()) << module.status();
    if (!module.ok()) return std::nullopt;
    ShardedModule sharded;
    sharded.mesh = mesh;
    sharded.module = *std::move(module);
    std::vector<hlo::Literal> inputs;
    for (const auto& instruction : sharded.module->entry()->instructions()) {
      const bool root = instruction.get() == sharded.module->entry()->root();
      ValueSharding& value = sharded.shardings[instruction.get()];
      if (instruction->opcode() == hlo::Opcode::kParameter) {
        const size_t i = instruction->number();
        value = {Split(instruction->shape().ndim(), c.operands[i], i == 0 ? c.second_operand : -1)};
        inputs.push_back(SampleInput(instruction->shape(), static_cast<uint64_t>(Pick(1, 1000))));
      } else if (!instruction->shape().is_array()) {
        for (const hlo::Shape& leaf : instruction->shape().tuple()) value.push_back(Split(leaf.ndim(), -1, -1));
      } else if (!root && !instruction->shape().is_scalar()) {
        value = {Split(instruction->shape().ndim(), c.operands[0], -1)};
      } else {
        value = {root ? Split(instruction->shape().ndim(), c.result, c.second_result) : TensorSharding::Replicated(0)};
      }
      if (root) sharded.results = value;
    }
    absl::StatusOr<hlo::Literal> whole = hlo::Evaluate(*sharded.module, inputs);
    EXPECT_TRUE(whole.ok()) << whole.status();
    absl::StatusOr<PartitionedProgram> partitioned = Partition(sharded, FamilyOf);
    EXPECT_TRUE(partitioned.ok()) << partitioned.status();
    if (!whole.ok() || !partitioned.ok()) return std::nullopt;
    const hlo::Module& local = *partitioned->variants[0].module;
    EXPECT_TRUE(hlo::Verify(local).ok()) << hlo::Verify(local);
    EXPECT_TRUE(CheckCollectives(*partitioned, local).ok()) << CheckCollectives(*partitioned, local);
    EXPECT_TRUE(CheckReplicasAgree(*partitioned, local).ok()) << CheckReplicasAgree(*partitioned, local);
    absl::StatusOr<hlo::Literal> joined = EvaluatePartitioned(*partitioned, inputs);
    EXPECT_TRUE(joined.ok()) << joined.status() << "\n" << hlo::PrintText(local);
    if (!joined.ok()) return std::nullopt;
    const absl::Status same = CompareValues(*joined, *whole, 1e-4);
    EXPECT_TRUE(same.ok()) << same << "\n" << hlo::PrintText(local);
    return Sent(local);
  }

  // Runs a case in which dimension 0 of the parameters and of the root is split, and sometimes dimension 1 too.
  void RunSplitRows(std::string body, size_t parameters = 1) {
    SplitOp c{std::move(body), std::vector<int>(parameters, 0), 0};
    if (Pick(0, 2) == 0) c.second_operand = c.second_result = 1;
    RunCase(c, Pick(2, 6));
  }

  static std::optional<int64_t> Sent(const hlo::Module& module) {
    int64_t elements = 0;
    for (const auto& instruction : module.entry()->instructions()) {
      if (!hlo::IsCollective(instruction->opcode())) continue;
      if (instruction->opcode() != hlo::Opcode::kCollectivePermute) return std::nullopt;
      elements += instruction->shape().elements();
    }
    return elements;
  }

  // A window along one dimension. `base` is the dilation of the operand, and `dilation` that of the window.
  struct Drawn {
    std::string text;
    int64_t positions = 0, size = 1, stride = 1, low = 0, high = 0, base = 1, dilation = 1;
  };
  static int64_t Positions(const Drawn& w, int64_t size) {
    const int64_t base = (size - 1) * w.base + 1 + w.low + w.high, span = (w.size - 1) * w.dilation + 1;
    return base < span ? 0 : (base - span) / w.stride + 1;
  }
  Drawn Draw(int64_t size, bool dilated, int64_t least_pad) {
    for (;;) {
      Drawn w;
      w.size = Pick(1, 4);
      w.stride = Pick(1, 3);
      w.low = Pick(least_pad, 3);
      w.high = Pick(least_pad, 3);
      w.base = dilated ? Pick(1, 3) : 1;
      w.dilation = Pick(1, 2);
      w.positions = Positions(w, size);
      if (w.positions > 0) return w;
    }
  }

  static inline int64_t shards_ = 1;
  std::unique_ptr<Random> random_ = SeededRandom(12);
};

#define P(w) absl::StrCat((w).low, "_", (w).high)

TEST_F(Halo, ConvolutionOverSplitInputAndOutput) {
  for (int i = 0; i < 600; ++i) {
    const int64_t h = Pick(1, 13), w = Pick(1, 7), features = Pick(1, 2);
    const Drawn a = Draw(h, true, -1), b = Draw(w, true, -1);
    const std::string rev = absl::StrCat(Pick(0, 1), "x", Pick(0, 1));
    SplitOp c;
    c.body = absl::StrCat("x = f32[2,", h, ",", w, ",", 2 * features, "] parameter(0)\n k = f32[", a.size, ",",
                          b.size, ",",
                          features, ",4] parameter(1)\n ROOT r = f32[2,", a.positions, ",", b.positions,
                          ",4] convolution(x, k), window={size=", a.size, "x", b.size, " stride=", a.stride, "x",
                          b.stride,
                          " pad=", P(a), "x", P(b), " lhs_dilate=", a.base, "x", b.base, " rhs_dilate=", a.dilation,
                          "x",
                          b.dilation, " rhs_reversal=", rev, "}, dim_labels=b01f_01io->b01f, feature_group_count=2\n");
    c.operands = {1, -1};
    c.result = 1;
    if (Pick(0, 2) == 0) c.second_operand = c.second_result = 2;
    if (Pick(0, 5) == 0) c.result = -1;
    RunCase(c, Pick(2, 6));
    if (HasFailure()) return;
  }
}

TEST_F(Halo, ConvolutionSummedOverSplitKernel) {
  for (int i = 0; i < 400; ++i) {
    const int64_t h = Pick(2, 13);
    Drawn a;
    do {
      a = Draw(h, true, -1);
      a.size = Pick(2, 9);
      a.positions = Positions(a, h);
    } while (a.positions == 0 || a.positions >= a.size);
    const int64_t groups = Pick(1, 2);
    SplitOp c;
    c.body = absl::StrCat("x = f32[4,", h, ",2] parameter(0)\n k = f32[", a.size, ",2,4] parameter(1)\n ROOT r = f32[",
                          4 / groups, ",", a.positions, ",4] convolution(x, k), window={size=", a.size, " stride=",
                          a.stride,
                          " pad=", P(a), " lhs_dilate=", a.base, " rhs_dilate=", a.dilation, " rhs_reversal=",
                          Pick(0, 1),
                          "}, dim_labels=b0f_0io->b0f", groups == 2 ? ", batch_group_count=2" : "", "\n");
    c.operands = {1, 0};
    RunCase(c, Pick(2, 6));
    if (HasFailure()) return;
  }
}

TEST_F(Halo, ReduceWindow) {
  for (int i = 0; i < 500; ++i) {
    const int64_t h = Pick(1, 13), w = Pick(1, 7);
    const Drawn a = Draw(h, true, 0), b = Draw(w, false, 0);
    RunSplitRows(absl::StrCat("x = f32[", h, ",", w, "] parameter(0)\n z = f32[] constant(", i % 3 == 0 ? "5" : "0",
                              ")\n ROOT r = f32[", a.positions, ",", b.positions,
                              "] reduce-window(x, z), window={size=", a.size, "x", b.size, " stride=", a.stride, "x",
                              b.stride, " pad=", P(a), "x", P(b), " lhs_dilate=", a.base, "x1 rhs_dilate=", a.dilation,
                              "x", b.dilation, "}, to_apply=", i % 2 == 0 ? "add" : "max", "\n"));
    if (HasFailure()) return;
  }
}

TEST_F(Halo, SelectAndScatter) {
  for (int i = 0; i < 500; ++i) {
    const int64_t h = Pick(1, 13), w = Pick(1, 7);
    Drawn a, b;
    const auto draw = [&](int64_t size) {
      Drawn d;
      do {
        d = Draw(size, false, 0);
        d.dilation = 1;
        d.positions = Positions(d, size);
      } while (d.positions == 0);
      return d;
    };
    a = draw(h);
    b = draw(w);
    RunSplitRows(absl::StrCat("x = f32[", h, ",", w, "] parameter(0)\n s = f32[", a.positions, ",", b.positions,
                              "] parameter(1)\n z = f32[] constant(", i % 3 == 0 ? "5" : "0", ")\n ROOT r = f32[", h,
                              ",", w, "] select-and-scatter(x, s, z), window={size=", a.size, "x", b.size, " stride=",
                              a.stride, "x", b.stride, " pad=", P(a), "x", P(b), "}, select=ge, scatter=add\n"),
                 2);
    if (HasFailure()) return;
  }
}

TEST_F(Halo, Pad) {
  for (int i = 0; i < 500; ++i) {
    const int64_t h = Pick(1, 13), low = Pick(-2, 9), high = Pick(-2, 9), interior = Pick(0, 2);
    const int64_t size = (h - 1) * (interior + 1) + 1 + low + high;
    if (size < 1) continue;
    RunSplitRows(absl::StrCat("x = f32[", h, ",3] parameter(0)\n z = f32[] constant(", Pick(0, 1), ")\n ROOT r = f32[",
                              size, ",5] pad(x, z), padding=", low, "_", high, "_", interior, "x2_0\n"));
    if (HasFailure()) return;
  }
}

TEST_F(Halo, SliceAndReverse) {
  for (int i = 0; i < 500; ++i) {
    const int64_t h = Pick(1, 17), start = Pick(0, h - 1), limit = Pick(start + 1, h), stride = Pick(1, 3);
    const int64_t size = (limit - start + stride - 1) / stride;
    SplitOp c;
    if (i % 3 == 0) {
      c.body = absl::StrCat("x = f32[", h, ",3] parameter(0)\n ROOT r = f32[", h, ",3] reverse(x), dimensions={0,1}\n");
    } else {
      c.body = absl::StrCat("x = f32[", h, ",3] parameter(0)\n ROOT r = f32[", size, ",2] slice(x), slice={[", start,
                          ":",
                            limit, ":", stride, "], [1:3]}\n");
    }
    c.operands = {0};
    c.result = 0;
    if (Pick(0, 2) == 0) c.second_operand = c.second_result = 1;
    RunCase(c, Pick(2, 6));
    if (HasFailure()) return;
  }
}

TEST_F(Halo, Concatenate) {
  for (int i = 0; i < 300; ++i) {
    SplitOp c;
    std::vector<std::string> names;
    int64_t size = 0;
    const int64_t count = Pick(1, 4);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t h = Pick(1, 9);
      absl::StrAppend(&c.body, "x", k, " = f32[3,", h, "] parameter(", k, ")\n");
      names.push_back(absl::StrCat("x", k));
      size += h;
      c.operands.push_back(Pick(0, 3) == 0 ? -1 : 1);
    }
    absl::StrAppend(&c.body, "ROOT r = f32[3,", size, "] concatenate(", absl::StrJoin(names, ", "),
                    "), dimensions={1}\n");
    c.result = 1;
    RunCase(c, Pick(2, 6));
    if (HasFailure()) return;
  }
}

TEST_F(Halo, Roll) {
  for (int i = 0; i < 200; ++i) {
    const int64_t h = Pick(2, 30), by = Pick(1, h - 1), shards = Pick(2, 6);
    SplitOp c;
    c.body = absl::StrCat("x = f32[", h, ",3] parameter(0)\n a = f32[", h - by, ",3] slice(x), slice={[", by, ":", h,
                          "], [0:3]}\n b = f32[", by, ",3] slice(x), slice={[0:", by, "], [0:3]}\n ROOT r = f32[", h,
                          ",3] concatenate(a, b), dimensions={0}\n");
    c.operands = {0};
    c.result = 0;
    const std::optional<int64_t> sent = RunCase(c, shards);
    if (HasFailure()) return;
    // There is one exchange with the next shard, and one between the first and the last shard. In each, a device sends
    // at most `by` rows of 3 elements.
    if (h % shards == 0 && 2 * by < h / shards) {
      ASSERT_TRUE(sent.has_value());
      EXPECT_LE(*sent, 2 * by * 3);
    }
  }
}

// Apart from padding, every shard of the slice equals that of the array, but the gathered arrays differ.
TEST_F(Halo, SliceThatMovesNothing) {
  SplitOp c;
  c.body = R"(x = f32[14,1] parameter(0)
    y = f32[13,1] slice(x), slice={[0:13], [0:1]}
    a = f32[14,1] sort(x), dimensions={0}, to_apply=lt
    b = f32[13,1] sort(y), dimensions={0}, to_apply=lt
    ROOT r = f32[27,1] concatenate(a, b), dimensions={0}
)";
  c.operands = {0};
  RunCase(c, 2);
}

TEST_F(Halo, CumulativeSum) {
  for (int i = 0; i < 100; ++i) {
    const int64_t h = Pick(2, 17), shards = Pick(2, 6);
    const bool forward = Pick(0, 1) == 0;
    SplitOp c;
    c.body = absl::StrCat("x = f32[3,", h, "] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[3,", h,
                          "] reduce-window(x, z), window={size=1x", h, " pad=0_0x", forward ? h - 1 : 0, "_",
                          forward ? 0 : h - 1, "}, to_apply=", Pick(0, 1) == 0 ? "add" : "max", "\n");
    c.operands = {1};
    c.result = 1;
    RunCase(c, shards);
    if (HasFailure()) return;
  }
}

TEST_F(Halo, DynamicSlice) {
  for (int i = 0; i < 150; ++i) {
    const int64_t h = Pick(2, 17), extent = Pick(1, h);
    SplitOp c;
    c.body = absl::StrCat("x = f32[", h, ",6] parameter(0)\n i = s32[] constant(", Pick(-2, h + 2),
                          ")\n j = s32[] constant(1)\n ROOT r = f32[", extent,
                          ",3] dynamic-slice(x, i, j), dynamic_slice_sizes={", extent, ",3}\n");
    c.operands = {0};
    c.result = Pick(0, 3) == 0 ? 0 : -1;
    RunCase(c, Pick(2, 6));
    if (HasFailure()) return;
  }
}

TEST_F(Halo, ReshapeOfSizesThatTheShardsDoNotDivide) {
  for (int i = 0; i < 200; ++i) {
    const int64_t h = Pick(2, 17), minor = Pick(2, 4), shards = Pick(2, 6);
    const std::string parted = absl::StrCat("f32[2,", h, ",", minor, ",3]");
    const std::string joined = absl::StrCat("f32[2,", h * minor, ",3]");
    const bool joins = Pick(0, 1) == 0;
    SplitOp c;
    c.body = absl::StrCat("x = ", joins ? parted : joined, " parameter(0)\n ROOT r = ", joins ? joined : parted,
                          " reshape(x)\n");
    c.operands = {1};
    c.result = 1;
    const std::optional<int64_t> sent = RunCase(c, shards);
    if (HasFailure()) return;
    // The axis may be divided between both factors if its size and that of the first factor have a common divisor.
    if (std::gcd(h, shards) == 1) {
      EXPECT_TRUE(sent.has_value()) << c.body << shards;
    }
  }
}

// A reduction of several operands gathers the results of all devices, which are smaller than the operands.
TEST_F(Halo, ArgmaxOverSplitDimension) {
  for (int i = 0; i < 100; ++i) {
    const int64_t h = Pick(2, 17);
    SplitOp c;
    c.body = absl::StrCat("x = f32[2,", h, "] parameter(0)\n n = s32[2,", h,
                          "] iota(), iota_dimension=1\n low = f32[] constant(-inf)\n zero = s32[] constant(0)\n "
                          "m = (f32[2], s32[2]) reduce(x, n, low, zero), dimensions={1}, to_apply=argmax\n "
                          "ROOT r = s32[2] get-tuple-element(m), index=1\n");
    c.operands = {1};
    RunCase(c, Pick(2, 6));
    if (HasFailure()) return;
  }
}

TEST(HaloPlan, NeighborsSendTheirEdgesOnly) {
  // A window of 3 with padding 1 on both sides.
  HaloPlan plan = PlanHalo({16, 4, {-1, 3, 7, 11}, 6, 0, 16});
  EXPECT_EQ(plan.rounds.size(), 2u);
  EXPECT_EQ(plan.sent(), 2);
  // Two devices swap their edges in one permute.
  plan = PlanHalo({16, 8, {-1, 7}, 10, 0, 16});
  EXPECT_EQ(plan.rounds.size(), 1u);
  EXPECT_EQ(plan.sent(), 1);
  // If windows begin and end at the borders of shards, nothing is sent.
  plan = PlanHalo({16, 4, {0, 4, 8, 12}, 4, 0, 16});
  EXPECT_EQ(plan.sent(), 0);
}

// The time to plan depends on the numbers of shards and pieces, but not on the number of elements.
TEST(HaloPlan, ManyShards) {
  constexpr int64_t kShards = 65536, kShard = int64_t{1} << 30;
  HaloNeed shifted{kShards * kShard, kShard, {}, kShard, 7, kShards * kShard};
  HaloNeed reversed{kShards * kShard, kShard, {}, kShard, 0, kShards * kShard};
  for (int64_t k = 0; k < kShards; ++k) {
    shifted.starts.push_back(7 + k * kShard);
    reversed.starts.push_back((kShards - 1 - k) * kShard);
  }
  EXPECT_EQ(PlanHalo(shifted).sent(), 7);
  EXPECT_EQ(PlanHalo(reversed).sent(), kShard);
}

}  // namespace
}  // namespace xlad::sharding
