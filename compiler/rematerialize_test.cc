// Memory limits: programs that compute values again fit into the limit, and their results have the same bits.
#include "compiler/buffers/rematerialize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "base/file_system.h"
#include "base/testing/case_count.h"
#include "base/work.h"
#include "compiler/testing/compare.h"
#include "compiler/testing/random_program.h"
#include "compiler/testing/run_steps.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

using tensor::Array;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Inputs = std::vector<std::vector<Array>>;

absl::StatusOr<Compilation> CompileWithin(const Module& module, int64_t limit, bool overlaps = false) {
  CompileRequest request;
  request.mutable_policy()->set_memory_limit_bytes(limit);
  if (overlaps) request.mutable_policy()->set_overlap(CompilePolicy::ALWAYS);
  return CompileToSteps(module.Clone(), request, {.verify = true});
}

std::vector<std::string> CollectivesOf(const Compilation& compilation) {
  std::vector<std::string> all;
  for (const CollectiveSpec& spec : compilation.steps.collectives) all.push_back(spec.SerializeAsString());
  return all;
}

void ExpectSameBits(const Compilation& found, const Compilation& expected, const Inputs& inputs) {
  const auto a = RunSteps(found, inputs), b = RunSteps(expected, inputs);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  for (size_t d = 0; d < a->size(); ++d) {
    ASSERT_EQ((*a)[d].size(), (*b)[d].size());
    for (size_t r = 0; r < (*a)[d].size(); ++r) {
      const auto left = (*a)[d][r].bytes(), right = (*b)[d][r].bytes();
      ASSERT_TRUE(std::equal(left.begin(), left.end(), right.begin(), right.end())) << "result " << r;
    }
  }
}

// What a limit did to a program.
struct LimitOutcome {
  bool fits = false;
  int64_t operations = 0;
};

// Compiles the program with limits between 40 % and 100 % of its temporaries. A program fits into its limit and has the
// same collectives, or is refused. Its results have the same bits unless the limit changed its attention or its loops.
std::vector<LimitOutcome> TryLimits(const Module& module, const Inputs& inputs, bool overlaps) {
  std::vector<LimitOutcome> outcomes;
  const auto usual = CompileWithin(module, 0, overlaps);
  EXPECT_TRUE(usual.ok()) << usual.status();
  if (!usual.ok()) return outcomes;
  const int64_t total = TotalBytes(usual->assignment), arena = usual->assignment.arena_bytes;
  for (const int percent : {40, 55, 70, 85, 95, 100}) {
    const int64_t limit = std::max<int64_t>(total - arena + arena * percent / 100, 1);
    const auto found = CompileWithin(module, limit, overlaps);
    outcomes.push_back({found.ok(), 0});
    if (!found.ok()) {
      EXPECT_EQ(found.status().code(), absl::StatusCode::kResourceExhausted) << found.status();
      EXPECT_THAT(std::string(found.status().message()), HasSubstr(absl::StrCat("needs ", total, " bytes")));
      EXPECT_LT(limit, total) << "a program that fits is not refused";
      continue;
    }
    outcomes.back().operations = RepeatedWorkOf(found->program).operations;
    EXPECT_LE(TotalBytes(found->assignment), limit);
    EXPECT_EQ(found->usual_bytes, limit < total ? total : 0);
    EXPECT_EQ(CollectivesOf(*found), CollectivesOf(*usual));
    if (!found->fuses_all_attention && !found->keeps_loops_small) ExpectSameBits(*found, *usual, inputs);
  }
  return outcomes;
}

void TryRandomPrograms(uint64_t first, int cases, int devices) {
  int repeated = 0;
  for (uint64_t seed = first; seed < first + cases && !testing::Test::HasFailure(); ++seed) {
    const RandomModule made = RandomLocalProgram(seed, 20 + static_cast<int>(seed % 40), devices);
    const auto random = SeededRandom(seed + 1);
    Inputs inputs;
    for (int d = 0; d < devices; ++d) inputs.push_back(RandomInputs(*made.module, random.get(), made.special));
    for (const LimitOutcome& outcome : TryLimits(*made.module, inputs, seed % 2 == 1))
      repeated += outcome.operations > 0;
    if (testing::Test::HasFailure()) ADD_FAILURE() << "seed " << seed << "\n" << hlo::PrintText(*made.module);
  }
  EXPECT_GT(repeated, cases / 20) << "limits have too little effect";
}

TEST(Rematerialize, RandomProgramsOfOneDevice) { TryRandomPrograms(0, CaseCount(60, 400), 1); }
TEST(Rematerialize, RandomProgramsOfManyDevices) { TryRandomPrograms(5000, CaseCount(40, 200), 2); }

// The text of a perceptron: a forward pass over layers, a backward pass, and updates of the donated weights.
std::string Layers(int layers, int rows, int width) {
  std::vector<std::string> shapes, updates, aliases, lines;
  const std::string matrix = absl::Substitute("f32[$0,$0]", width),
                    values = absl::Substitute("f32[$0,$1]", rows, width);
  const auto add = [&](absl::string_view format, int layer) {
    lines.push_back(absl::Substitute(format, layer, layer - 1, layer + 1, matrix, values));
  };
  for (int i = 0; i < layers; ++i) {
    add("  w$0 = $3 parameter($0)", i);
    aliases.push_back(absl::Substitute("{$0}: ($0, {}, may-alias)", i));
    shapes.push_back(matrix);
    updates.push_back(absl::StrCat("u", i));
  }
  lines.push_back(absl::Substitute("  h-1 = $0 parameter($1)\n  one = f32[] constant(1)", values, layers));
  lines.push_back(absl::Substitute("  ones = $0 broadcast(one), dimensions={}", values));
  for (int i = 0; i < layers; ++i) {
    add("  d$0 = $4 dot(h$1, w$0), lhs_contracting_dims={1}, rhs_contracting_dims={0}", i);
    add("  h$0 = $4 tanh(d$0)", i);
  }
  lines.push_back(absl::Substitute("  e$0 = $1 negate(h$2)", layers, values, layers - 1));
  for (int i = layers - 1; i >= 0; --i) {
    add("  q$0 = $4 multiply(h$0, h$0)\n  s$0 = $4 subtract(ones, q$0)\n  g$0 = $4 multiply(e$2, s$0)", i);
    add("  n$0 = $3 dot(h$1, g$0), lhs_contracting_dims={0}, rhs_contracting_dims={0}", i);
    add("  u$0 = $3 subtract(w$0, n$0)", i);
    add("  e$0 = $4 dot(g$0, w$0), lhs_contracting_dims={1}, rhs_contracting_dims={1}", i);
  }
  return absl::StrCat("HloModule layers, input_output_alias={ ", absl::StrJoin(aliases, ", "), " }\nENTRY e {\n",
                      absl::StrJoin(lines, "\n"), "\n  ROOT r = (", absl::StrJoin(shapes, ", "), ") tuple(",
                      absl::StrJoin(updates, ", "), ")\n}\n");
}

std::unique_ptr<Module> Parse(const std::string& text) {
  auto module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return std::move(*module);
}

// The bytes of temporaries of a program, and those of its plan for a limit.
struct Arenas {
  int64_t usual = 0, found = 0;
  RepeatedWork work;
};

Arenas ArenasOf(const Module& module, int percent) {
  const auto usual = CompileWithin(module, 0);
  EXPECT_TRUE(usual.ok()) << usual.status();
  Arenas arenas{usual->assignment.arena_bytes};
  const int64_t limit = TotalBytes(usual->assignment) - arenas.usual + arenas.usual * percent / 100;
  const PlannedProgram plan = Rematerialize(usual->program, limit);
  const absl::Status status = CheckAssignment(plan.program, plan.assignment);
  EXPECT_TRUE(status.ok()) << status;
  arenas.found = plan.assignment.arena_bytes;
  arenas.work = RepeatedWorkOf(plan.program);
  return arenas;
}

// With segments of sqrt(n) layers, n layers need memory for about 2 sqrt(n) layers and repeat the forward pass once.
// The forward pass has a third of the operations on floats.
TEST(Rematerialize, DeepProgramsNeedMemoryForTheSquareRootOfTheLayers) {
  const Arenas small = ArenasOf(*Parse(Layers(16, 64, 16)), 0), large = ArenasOf(*Parse(Layers(64, 64, 16)), 0);
  EXPECT_GT(static_cast<double>(large.usual), 3.5 * static_cast<double>(small.usual));
  EXPECT_LT(static_cast<double>(large.found), 2.3 * static_cast<double>(small.found));
  for (const int layers : {32, 64, 128}) {
    const Arenas arenas = ArenasOf(*Parse(Layers(layers, 64, 16)), 30);
    EXPECT_LE(arenas.found * 10, arenas.usual * 3) << layers;
    EXPECT_LT(arenas.work.flops, 0.6 * arenas.work.usual_flops) << layers;
  }
}

TEST(Rematerialize, AHigherLimitNeedsFewerRepeatedOperations) {
  const auto module = Parse(Layers(32, 64, 16));
  const auto random = SeededRandom(1);
  const std::vector<LimitOutcome> outcomes = TryLimits(*module, {RandomInputs(*module, random.get())}, false);
  ASSERT_EQ(outcomes.size(), 6);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    EXPECT_TRUE(outcomes[i].fits) << i;
    if (i > 0) EXPECT_LE(outcomes[i].operations, outcomes[i - 1].operations) << i;
  }
  EXPECT_EQ(outcomes.back().operations, 0);
  // A layer is a dot and a tanh. At 95 %, two of 32 layers are repeated.
  EXPECT_LE(outcomes[4].operations, 6);
}

// Near a limit that cannot be reached, many positions need too much memory, and most operations could be repeated once
// for each of them in every round.
TEST(Rematerialize, AProgramGrowsByABoundedFactor) {
  int reached = 0;
  std::vector<int> sizes = {16, 48};
  if (AllCases()) sizes.push_back(128);
  for (const int layers : sizes) {
    const auto usual = CompileWithin(*Parse(Layers(layers, 64, 16)), 0);
    ASSERT_TRUE(usual.ok()) << usual.status();
    const int64_t fixed = TotalBytes(usual->assignment) - usual->assignment.arena_bytes;
    for (const int permille : {0, 10, 40, 80, 130, 200, 300}) {
      const PlannedProgram plan =
          Rematerialize(usual->program, std::max<int64_t>(fixed + usual->assignment.arena_bytes * permille / 1000, 1));
      const absl::Status status = CheckAssignment(plan.program, plan.assignment);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_LE(plan.program.ops.size(), kMaxGrowth * usual->program.ops.size()) << layers << " " << permille;
      reached += plan.reached_growth ? 1 : 0;
    }
  }
  EXPECT_GT(reached, 0);
}

// The number of plans that are tried is bounded. Up to this bound, larger programs may need more plans.
TEST(Rematerialize, WorkIsLessThanQuadratic) {
  const auto work_of = [](int layers, int percent) {
    const auto module = Parse(Layers(layers, 8, 8));
    const int64_t before = WorkOfThread();
    ArenasOf(*module, percent);
    return WorkOfThread() - before;
  };
  for (const int percent : {0, 25, 60}) {
    const int64_t small = work_of(60, percent), large = work_of(240, percent);
    EXPECT_LT(large, 12 * small) << percent << ": " << small << " and " << large;
  }
}

// The iterations of a loop each have a forward and a backward pass, as for accumulated gradients.
TEST(Rematerialize, BodiesOfLoopsRepeatOperations) {
  std::vector<std::string> lines;
  constexpr int kLayers = 12;
  const auto dot = [](absl::string_view name, int number, absl::string_view lhs, absl::string_view rhs) {
    return absl::StrCat("  ", name, number, " = f32[32,32] dot(", lhs, ", ", rhs,
                        "), lhs_contracting_dims={1}, rhs_contracting_dims={0}");
  };
  for (int i = 0; i < kLayers; ++i) {
    lines.push_back(dot("d", i, absl::StrCat("h", i), "x"));
    lines.push_back(absl::Substitute("  h$0 = f32[32,32] tanh(d$1)", i + 1, i));
  }
  lines.push_back(absl::StrCat("  g", kLayers, " = f32[32,32] negate(h", kLayers, ")"));
  for (int i = kLayers - 1; i >= 0; --i) {
    lines.push_back(absl::Substitute("  m$0 = f32[32,32] multiply(g$1, h$0)", i, i + 1));
    lines.push_back(dot("g", i, absl::StrCat("m", i), "x"));
  }
  const auto module = Parse(absl::StrCat(R"(HloModule loop
body {
  t = (s32[], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[32,32] get-tuple-element(t), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  h0 = f32[32,32] sine(x)
)",
                                         absl::StrJoin(lines, "\n"), R"(
  ROOT r = (s32[], f32[32,32]) tuple(next, g0)
}
condition {
  t = (s32[], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[32,32] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[32,32]) tuple(zero, x)
  w = (s32[], f32[32,32]) while(t), condition=condition, body=body
  ROOT r = f32[32,32] get-tuple-element(w), index=1
})"));
  const auto random = SeededRandom(1);
  const std::vector<LimitOutcome> outcomes = TryLimits(*module, {RandomInputs(*module, random.get())}, false);
  ASSERT_EQ(outcomes.size(), 6);
  for (size_t i = 2; i < outcomes.size(); ++i) EXPECT_TRUE(outcomes[i].fits) << i;
  EXPECT_GT(outcomes[2].operations, 0);
}

// A loop of the program holds `larger` bytes more than necessary until it ends. Repeating operations does not shorten
// this time.
void ExpectALowLimitKeepsLoopsSmall(const std::string& name, int64_t larger) {
  const auto module = Parse(hlo::TestText(absl::StrCat("compiler/buffers/testdata/", name)));
  const auto random = SeededRandom(1);
  const Inputs inputs = {RandomInputs(*module, random.get())};
  const auto usual = CompileWithin(*module, 0);
  ASSERT_TRUE(usual.ok()) << usual.status();
  const auto expected = RunSteps(*usual, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const int64_t total = TotalBytes(usual->assignment);
  for (const int64_t limit : {total, total - 1, total - larger}) {
    const auto found = CompileWithin(*module, limit);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_LE(TotalBytes(found->assignment), limit);
    EXPECT_EQ(found->keeps_loops_small, limit < total);
    EXPECT_EQ(found->usual_bytes, limit < total ? total : 0);
    EXPECT_FALSE(found->fuses_all_attention);
    const auto results = RunSteps(*found, inputs);
    ASSERT_TRUE(results.ok()) << results.status();
    const absl::Status same = CompareResults((*results)[0], (*expected)[0], {Exactness{Agreement::kMagnitudes}});
    EXPECT_TRUE(same.ok()) << same;
  }
  EXPECT_EQ(CompileWithin(*module, larger).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Rematerialize, ALowLimitLeavesOperandsOfLoopsUnpacked) {
  ExpectALowLimitKeepsLoopsSmall("loop_with_weights.hlo", 4 * 256 * 512);
}

// By default, the loop stores 64 KiB of operands. Otherwise, it holds a sum and a product of 16 KiB each.
TEST(Rematerialize, ALowLimitLeavesOperandsOfSumsUnstored) {
  ExpectALowLimitKeepsLoopsSmall("loop_with_sum_of_dots.hlo", 4 * (32 * 8 * 64 - 2 * 64 * 64));
}

TEST(Rematerialize, TheRefusalSaysWhatRepeatedOperationsSave) {
  const auto module = Parse(Layers(16, 64, 16));
  const auto refused = CompileWithin(*module, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(ContainsRegex("found a step that needs [0-9]+ bytes on a device"),
                    ContainsRegex("It needs at least [0-9]+ bytes if values are computed again "
                                  "\\([0-9]+ operations are repeated: [0-9.]+ % more operations on floats, [0-9]+ "
                                  "bytes read and written\\)"),
                    HasSubstr("the largest values are then: ")));
}

TEST(Rematerialize, TheLeastBytesOfARefusalAreEnough) {
  for (const int layers : {7, 16, 40}) {
    const auto module = Parse(Layers(layers, 64, 16));
    const auto usual = CompileWithin(*module, 0);
    ASSERT_TRUE(usual.ok()) << usual.status();
    const int64_t least = TotalBytes(Rematerialize(usual->program, 1).assignment);
    for (const int percent : {100, 105, 120}) {
      const int64_t limit = least * percent / 100;
      const auto found = CompileWithin(*module, limit);
      ASSERT_TRUE(found.ok()) << layers << " " << percent << ": " << found.status();
      EXPECT_LE(TotalBytes(found->assignment), limit);
    }
  }
}

class RematerializedExamples : public testing::TestWithParam<const char*> {};

TEST_P(RematerializedExamples, FitOrAreRefusedAndHaveTheSameBits) {
  if (std::getenv("XLAD_EXAMPLES") == nullptr) GTEST_SKIP() << "XLAD_EXAMPLES is not set";
  const auto text =
      RealFileSystem().Read(JoinPath(std::getenv("XLAD_EXAMPLES"), absl::StrCat(GetParam(), "/step.single.hlo")));
  ASSERT_TRUE(text.ok()) << text.status();
  const auto module = Parse(*text);
  const auto random = SeededRandom(1);
  TryLimits(*module, {RandomInputs(*module, random.get())}, false);
}

// The larger examples take several seconds each.
std::vector<const char*> ExamplesToTry() {
  std::vector<const char*> names = {"digits_mlp", "dropout_rng", "lstm", "moe"};
  if (AllCases()) names.insert(names.end(), {"nano_gpt", "nano_gpt_bf16", "cnn"});
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, RematerializedExamples, testing::ValuesIn(ExamplesToTry()));

}  // namespace
}  // namespace xlad::compiler
