// Deferred reductions: where and how often partial sums are reduced, and whether the results equal the source
// program's.
#include "sharding/partition/deferred_reductions.h"

#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/testing/case_count.h"
#include "hlo/eval/evaluate.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "sharding/explain/explain.h"
#include "sharding/partition/min_cut.h"
#include "sharding/partition/ops/families.h"
#include "sharding/pipeline.h"
#include "sharding/proof/check_structure.h"
#include "sharding/proof/equivalence.h"
#include "sharding/rules/linear.h"
#include "sharding/testing/random_sharding.h"

namespace xlad::sharding {
namespace {

#define ADD "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
#define SPLIT(sharding) ", frontend_attributes={xla.sdy.sharding=\"#sdy.sharding<@mesh, " sharding ">\"}"
#define HEADER(meshes) "HloModule m, frontend_attributes={xla.sdy.meshes=\"{mesh = #sdy.mesh<[" meshes "]>}\"}\n"

// A loop of 5 steps whose body has the carried sum `g` and a gradient `d` that is contracted over the split batch.
// `next` are the instructions that compute the next sum `g2`, `after` those that use the final sum `o`, and `init`
// those that define the initial sum `g0`.
std::string Accumulates(absl::string_view next, absl::string_view after = "ROOT r = f32[6,8] negate(o)",
                        absl::string_view init = "z = f32[] constant(0)\n  g0 = f32[6,8] broadcast(z), dimensions={}") {
  return absl::StrReplaceAll(hlo::TestText("sharding/partition/testdata/accumulates.hlo"),
                             {{"$next", next}, {"$after", after}, {"$init", init}});
}

struct Outcome {
  std::vector<std::string> collectives;  // "all-reduce 1x192", in order.
  std::vector<std::string> because;      // The cause chain of the first collective.
  std::string text;
};

// Partitions and checks the program, and compares it with the source program on the evaluator.
Outcome Partitioned(const std::string& text) {
  Outcome outcome;
  absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok()) return outcome;
  const std::vector<hlo::Literal> inputs = SampleInputs(**module);
  absl::StatusOr<hlo::Literal> whole = hlo::Evaluate(**module, inputs);
  EXPECT_TRUE(whole.ok()) << whole.status();
  absl::StatusOr<PipelineResult> result = RunPipeline(*std::move(module), {});
  EXPECT_TRUE(result.ok()) << result.status();
  if (!whole.ok() || !result.ok()) return outcome;
  outcome.text = hlo::PrintText(*result->partitioned.variants[0].module);
  absl::StatusOr<hlo::Literal> joined = EvaluatePartitioned(result->partitioned, inputs);
  EXPECT_TRUE(joined.ok()) << joined.status();
  if (joined.ok()) EXPECT_TRUE(CompareValues(*joined, *whole, 1e-4).ok()) << CompareValues(*joined, *whole, 1e-4);
  const Explanation explanation = *Explain(result->partitioned);
  for (const ExplainedCollective& c : explanation.collectives) {
    if (outcome.collectives.empty()) outcome.because = c.because;
    outcome.collectives.push_back(absl::StrCat(c.kind, " ", c.trip_count.value_or(-1), "x", c.bytes));
  }
  return outcome;
}

using Collectives = std::vector<std::string>;
constexpr const char* kAdd = "g2 = f32[6,8] add(g, d)";
// 6 x 8 floats over 4 devices: 2 * 3/4 * 192 bytes.
const Collectives kOnceAfterTheLoop = {"all-reduce 1x288"};

TEST(DeferredReductions, AccumulatorIsReducedOnceAfterTheLoop) {
  const Outcome outcome = Partitioned(Accumulates(kAdd));
  EXPECT_EQ(outcome.collectives, kOnceAfterTheLoop) << outcome.text;
  ASSERT_FALSE(outcome.because.empty());
  EXPECT_EQ(outcome.because[0], "d: contracting dimension 0 of operand 0 is split over dp, so every device has a "
                                "partial result");
}

TEST(DeferredReductions, AccumulatorsOfSeveralForms) {
  for (const char* next : {"g2 = f32[6,8] add(d, g)", "g2 = f32[6,8] subtract(g, d)",
                           "h = f32[] constant(0.5)\n hb = f32[6,8] broadcast(h), dimensions={}\n"
                           "dh = f32[6,8] multiply(d, hb)\n g2 = f32[6,8] add(g, dh)",
                           "e = f32[8,6] dot(y, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
                           "et = f32[6,8] transpose(e), dimensions={1,0}\n s = f32[6,8] add(d, et)\n"
                           "g2 = f32[6,8] add(g, s)",
                           "c = pred[] compare(i, one), direction=GT\n cb = pred[6,8] broadcast(c), dimensions={}\n"
                           "z = f32[] constant(0)\n zb = f32[6,8] broadcast(z), dimensions={}\n"
                           "m = f32[6,8] select(cb, d, zb)\n g2 = f32[6,8] add(g, m)",
                           "o1 = f32[1,8] slice(d), slice={[0:1], [0:8]}\n zero = s32[] constant(0)\n"
                           "old = f32[1,8] dynamic-slice(g, i, zero), dynamic_slice_sizes={1,8}\n"
                           "new = f32[1,8] add(old, o1)\n g2 = f32[6,8] dynamic-update-slice(g, new, i, zero)"}) {
    SCOPED_TRACE(next);
    const Outcome outcome = Partitioned(Accumulates(next));
    EXPECT_EQ(outcome.collectives, kOnceAfterTheLoop) << outcome.text;
  }
}

// The initial value counts once, regardless of the number of devices that hold it.
TEST(DeferredReductions, AccumulatorThatDoesNotStartFromZero) {
  const Outcome outcome = Partitioned(Accumulates(kAdd, "ROOT r = f32[6,8] negate(o)", "g0 = f32[6,8] negate(w)"));
  EXPECT_EQ(outcome.collectives, kOnceAfterTheLoop) << outcome.text;
}

TEST(DeferredReductions, AccumulatorThatIsReadInTheLoopIsReducedThere) {
  const Outcome outcome = Partitioned(Accumulates("k = f32[6,8] cosine(g)\n g2 = f32[6,8] add(k, d)"));
  EXPECT_EQ(outcome.collectives, (Collectives{"all-reduce 5x288"})) << outcome.text;
}

// 4 of 6 rows are used.
TEST(DeferredReductions, OnlyUsedElementsAreReduced) {
  const Outcome outcome = Partitioned(
      Accumulates(kAdd, "s = f32[4,8] slice(o), slice={[1:5], [0:8]}\n ROOT r = f32[4,8] negate(s)"));
  EXPECT_EQ(outcome.collectives, (Collectives{"all-reduce 1x192"})) << outcome.text;
}

TEST(DeferredReductions, SplitResultsGetAReduceScatter) {
  const Outcome outcome = Partitioned(absl::StrReplaceAll(
      Accumulates(kAdd, "ROOT r = f32[6,8] negate(o)$tail"), {{"$tail", SPLIT(R"([{}, {\"dp\"}])")}}));
  for (const std::string& collective : outcome.collectives) {
    EXPECT_EQ(collective.substr(0, 14), "reduce-scatter") << outcome.text;
  }
}

TEST(DeferredReductions, NestedLoops) {
  const Outcome outcome = Partitioned(hlo::TestText("sharding/partition/testdata/accumulates_in_nested_loops.hlo"));
  ASSERT_EQ(outcome.collectives.size(), 1u) << outcome.text;
  EXPECT_EQ(outcome.collectives[0].substr(0, 13), "all-reduce 1x") << outcome.text;
}

// If a weight is used twice, the sum of both gradients is reduced instead of each gradient.
TEST(DeferredReductions, SumOfTwoPartialsIsReducedOnce) {
  const Outcome outcome = Partitioned(absl::StrReplaceAll(HEADER(R"(\"dp\"=4)") R"(
ENTRY main {
  x = f32[16,6] parameter(0)$dp
  y = f32[16,8] parameter(1)$dp
  w = f32[6,8] parameter(2)
  d = f32[6,8] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  xs = f32[16,6] sine(x)
  e = f32[6,8] dot(xs, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dw = f32[6,8] add(d, w)
  s = f32[6,8] add(dw, e)
  ROOT r = f32[6,8] cosine(s)
})",
                                                          {{"$dp", SPLIT(R"([{\"dp\"}, {}])")}}));
  EXPECT_EQ(outcome.collectives, kOnceAfterTheLoop) << outcome.text;
}

// Linear ops after a contraction, under random shardings.
TEST(DeferredReductions, NumbersUnderRandomShardings) {
  const std::string text =
      Accumulates("h = f32[] constant(0.5)\n hb = f32[6,8] broadcast(h), dimensions={}\n"
                  "dh = f32[6,8] multiply(d, hb)\n v = f32[6,8] reverse(dh), dimensions={0}\n"
                  "g2 = f32[6,8] subtract(v, g)",
                  "a = f32[6,8] add(o, w)\n z1 = f32[] constant(0)\n s = f32[8] reduce(a, z1), dimensions={0}, "
                  "to_apply=add\n c = f32[16] concatenate(s, s), dimensions={0}\n ROOT r = f32[16] sine(c)",
                  "g0 = f32[6,8] negate(w)");
  for (const char* mesh : {"dp=2", "dp=3", "dp=2,tp=2", "dp=2,tp=3"}) {
    for (uint64_t seed = 1; seed <= CaseCount(20, 60); ++seed) {
      SCOPED_TRACE(absl::StrCat(mesh, " seed ", seed));
      std::unique_ptr<hlo::Module> module = *hlo::ParseText(text);
      const std::vector<hlo::Literal> inputs = SampleInputs(*module, seed);
      const hlo::Literal whole = *hlo::Evaluate(*module, inputs);
      const ShardedModule sharded = WithRandomShardings(std::move(module), *ParseMesh(mesh), seed);
      absl::StatusOr<PartitionedProgram> program = Partition(sharded, FamilyOf);
      ASSERT_TRUE(program.ok()) << program.status();
      ASSERT_TRUE(CheckPartials(*program, *program->variants[0].module).ok())
          << CheckPartials(*program, *program->variants[0].module) << hlo::PrintText(*program->variants[0].module);
      absl::StatusOr<hlo::Literal> joined = EvaluatePartitioned(*program, inputs);
      ASSERT_TRUE(joined.ok()) << joined.status();
      ASSERT_TRUE(CompareValues(*joined, whole, 1e-4).ok())
          << CompareValues(*joined, whole, 1e-4) << hlo::PrintText(*program->variants[0].module);
    }
  }
}

TEST(MinCut, ReturnsTheCheapestCutNearestToTheSource) {
  FlowNetwork chain(4);
  chain.AddEdge(0, 1, 5);
  chain.AddEdge(1, 2, 3);
  chain.AddEdge(2, 3, 3);
  EXPECT_EQ(chain.SourceSide(0, 3), (std::vector<bool>{true, true, false, false}));
  FlowNetwork joined(5);  // Two paths of capacity 4 that join in an edge of capacity 5.
  joined.AddEdge(0, 1, 4);
  joined.AddEdge(0, 2, 4);
  joined.AddEdge(1, 3, FlowNetwork::kUncuttable);
  joined.AddEdge(2, 3, FlowNetwork::kUncuttable);
  joined.AddEdge(3, 4, 5);
  EXPECT_EQ(joined.SourceSide(0, 4), (std::vector<bool>{true, true, true, true, false}));
}

TEST(Linear, RoundingToACoarserTypeIsNotLinear) {
  const std::unique_ptr<hlo::Module> module = *hlo::ParseText(R"(HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  i = f32[] constant(inf)
  ib = f32[4] broadcast(i), dimensions={}
  down = bf16[4] convert(x)
  up = f32[4] convert(down)
  m = f32[4] multiply(x, ib)
  ROOT d = f32[4] divide(ib, m)
})");
  for (const auto& instruction : module->entry()->instructions()) {
    if (instruction->operand_count() == 0) continue;
    const bool linear = instruction->name() == "up" || instruction->name() == "ib";
    EXPECT_EQ(IsLinearIn(*instruction, 0), linear) << instruction->name();
  }
}

}  // namespace
}  // namespace xlad::sharding
