#include "compiler/analysis/attention_cost.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/compile.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

// Parts of the test programs: the scores with and without a mask, and the results.
constexpr char kCausal[] = R"(
  t = s32[#T,#S] iota(), iota_dimension=0
  s = s32[#T,#S] iota(), iota_dimension=1
  small = pred[#T,#S] compare(t, s), direction=GE
  mask = pred[#H,#T,#S] broadcast(small), dimensions={1,2}
  lowest = f32[] constant(-1e30)
  lows = f32[#H,#T,#S] broadcast(lowest), dimensions={}
  scores = f32[#H,#T,#S] select(mask, products, lows))";
constexpr char kUnmasked[] = "scores = f32[#H,#T,#S] negate(products)";
constexpr char kOutput[] = "ROOT r = f32[#H,#T,#D] copy(o)";
// The backward pass for the gradient g of o.
constexpr char kGradient[] = R"(
  dp = f32[#H,#T,#S] dot(g, v), #B, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  go = f32[#H,#T,#D] multiply(g, o)
  inner = f32[#H,#T] reduce(go, zero), dimensions={2}, to_apply=add
  inners = f32[#H,#T,#S] broadcast(inner), dimensions={0,1}
  centered = f32[#H,#T,#S] subtract(dp, inners)
  ds = f32[#H,#T,#S] multiply(centered, p)
  dq = f32[#H,#T,#D] dot(ds, k), #B, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  dk = f32[#H,#S,#D] dot(ds, q), #B, lhs_contracting_dims={1}, rhs_contracting_dims={1}
  dv = f32[#H,#S,#D] dot(p, g), #B, lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT r = (f32[#H,#T,#D], f32[#H,#T,#D], f32[#H,#S,#D], f32[#H,#S,#D]) tuple(o, dq, dk, dv))";

struct Sizes {
  int64_t heads, rows, columns, features;
  bool causal = true, gradient = true, is_f16 = false;
};

std::unique_ptr<Module> Program(const Sizes& sizes) {
  const std::string form = hlo::TestText("compiler/analysis/testdata/attention.template");
  const std::string text = absl::StrReplaceAll(
      absl::StrReplaceAll(form,
                          {{"#M", sizes.causal ? kCausal : kUnmasked}, {"#R", sizes.gradient ? kGradient : kOutput}}),
      {{"#B", "lhs_batch_dims={0}, rhs_batch_dims={0}"},
       {"#H", absl::StrCat(sizes.heads)},
       {"#T", absl::StrCat(sizes.rows)},
       {"#S", absl::StrCat(sizes.columns)},
       {"#D", absl::StrCat(sizes.features)}});
  auto module = hlo::ParseText(sizes.is_f16 ? absl::StrReplaceAll(text, {{"f32[", "f16["}}) : text);
  EXPECT_TRUE(module.ok()) << module.status();
  return std::move(*module);
}

struct Outcome {
  std::vector<AttentionCost> costs;
  int ops = 0;
};

Outcome Compiled(const Sizes& sizes, const CompileRequest& request = {},
                 AttentionChoice choice = AttentionChoice::kByCost) {
  Outcome outcome;
  CompileOptions options;
  options.attention = choice;
  options.attention_costs = &outcome.costs;
  const auto compilation = CompileToSteps(Program(sizes), request, options);
  EXPECT_TRUE(compilation.ok()) << compilation.status();
  for (const LibraryOp& op : compilation->steps.library_ops) outcome.ops += op.has_attention() ? 1 : 0;
  return outcome;
}

double CountOf(const CostTerms& terms, const std::string& name) {
  for (const CostTerm& term : terms) {
    if (term.name == name) return term.count;
  }
  ADD_FAILURE() << "no term " << name;
  return 0;
}

TEST(AttentionCost, LongSequencesAreFused) {
  for (const int64_t features : {16, 64, 128}) {
    for (const bool causal : {false, true}) {
      for (const bool gradient : {false, true}) {
        for (const int64_t length : {4096, 16384, 65536}) {
          const Outcome outcome = Compiled({4, length, length, features, causal, gradient});
          EXPECT_EQ(outcome.ops, gradient ? 2 : 1) << length << " " << features << " " << causal << " " << gradient;
        }
      }
    }
  }
}

TEST(AttentionCost, LongSequencesOfF16AreFused) {
  for (const bool gradient : {false, true}) {
    for (const int64_t length : {512, 4096, 16384}) {
      EXPECT_EQ(Compiled({4, length, length, 64, false, gradient, true}).ops, gradient ? 2 : 1) << length;
    }
  }
}

TEST(AttentionCost, SmallScoresAreNotFused) {
  for (const int64_t features : {16, 64}) {
    for (const int64_t heads : {16, 128}) EXPECT_EQ(Compiled({heads, 32, 32, features}).ops, 0) << heads;
  }
}

// If a library op is chosen for an attention, it is also chosen for a longer sequence.
TEST(AttentionCost, LongerSequencesStayFused) {
  for (const bool causal : {false, true}) {
    for (const bool gradient : {false, true}) {
      bool fused = false;
      for (int64_t length = 32; length <= 32768; length *= 2) {
        const bool now = Compiled({8, length, length, 64, causal, gradient}).ops > 0;
        EXPECT_TRUE(now || !fused) << length;
        fused = now;
      }
      EXPECT_TRUE(fused);
    }
  }
}

TEST(AttentionCost, CountsWork) {
  const Outcome outcome = Compiled({2, 192, 192, 64, false, false}, {}, AttentionChoice::kAlways);
  ASSERT_EQ(outcome.costs.size(), 1);
  const double scores = 2 * 192 * 192;
  for (const CostTerms& terms : {outcome.costs[0].fused, outcome.costs[0].separate}) {
    EXPECT_EQ(CountOf(terms, "multiply"), 2 * scores * 64);
    EXPECT_EQ(CountOf(terms, "expensive"), scores);
  }
  EXPECT_EQ(CountOf(outcome.costs[0].fused, "scores"), scores);
  // Scores and probabilities are written and read.
  EXPECT_EQ(CountOf(outcome.costs[0].separate, "near_bytes"), 4 * 4 * scores);
  // In the backward pass, the library op computes the scores again. Separate steps do not.
  const Outcome both = Compiled({2, 192, 192, 64, false, true}, {}, AttentionChoice::kAlways);
  ASSERT_EQ(both.costs.size(), 1);
  EXPECT_EQ(CountOf(both.costs[0].fused, "multiply"), (2 + 5) * scores * 64);
  EXPECT_EQ(CountOf(both.costs[0].separate, "multiply"), (2 + 4) * scores * 64);
  // The library op skips nearly half of the scores of a causal attention.
  const Outcome masked = Compiled({2, 1536, 1536, 64, true, false}, {}, AttentionChoice::kAlways);
  ASSERT_EQ(masked.costs.size(), 1);
  EXPECT_LT(CountOf(masked.costs[0].fused, "scores"), 0.55 * 2 * 1536 * 1536);
  EXPECT_EQ(CountOf(masked.costs[0].separate, "expensive"), 2 * 1536 * 1536);
}

// Separate products convert all of their operands and results. In both forms, scores are rounded after each operation.
TEST(AttentionCost, CountsConversionsOfF16) {
  const Outcome outcome = Compiled({2, 192, 192, 64, false, false, true}, {}, AttentionChoice::kAlways);
  ASSERT_EQ(outcome.costs.size(), 1);
  const double scores = 2 * 192 * 192, rows = 2 * 192 * 64;
  EXPECT_EQ(CountOf(outcome.costs[0].separate, "widened"), 2 * scores + 4 * rows);
  EXPECT_EQ(CountOf(outcome.costs[0].fused, "stored_half"), rows);
  for (const CostTerms& terms : {outcome.costs[0].fused, outcome.costs[0].separate}) {
    EXPECT_GE(CountOf(terms, "round"), 4 * scores);
  }
  const Outcome in_f32 = Compiled({2, 192, 192, 64, false, false}, {}, AttentionChoice::kAlways);
  EXPECT_EQ(CountOf(in_f32.costs[0].separate, "widened"), 0);
}

// A limit fuses all attention only if the program does not fit otherwise, because fused attention rounds differently.
TEST(AttentionCost, ALowMemoryLimitFusesAllAttention) {
  const Sizes small = {16, 32, 32, 16};
  EXPECT_EQ(Compiled(small).ops, 0);
  EXPECT_EQ(Compiled(small, {}, AttentionChoice::kAlways).ops, 2);
  CompileRequest request;
  int64_t limit = int64_t{1} << 30;
  bool fuses = false;
  for (;; limit = limit * 19 / 20) {
    request.mutable_policy()->set_memory_limit_bytes(limit);
    const auto compilation = CompileToSteps(Program(small), request);
    if (!compilation.ok()) break;
    int ops = 0;
    for (const LibraryOp& op : compilation->steps.library_ops) ops += op.has_attention() ? 1 : 0;
    EXPECT_EQ(compilation->fuses_all_attention, ops == 2) << limit;
    EXPECT_TRUE(ops == 2 || !fuses) << limit;
    fuses = ops == 2;
  }
  EXPECT_TRUE(fuses);
  CompileOptions options;
  options.attention = AttentionChoice::kNever;
  request.mutable_policy()->set_memory_limit_bytes(limit * 20 / 19 + 1);
  EXPECT_FALSE(CompileToSteps(Program(small), request, options).ok()) << "separate steps need more memory";
}

}  // namespace
}  // namespace xlad::compiler
