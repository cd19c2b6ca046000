// Random loops that fill arrays and sum dots. Compares the evaluator's results before and after the passes for such
// loops, and the results of the step program, whose memory is filled with garbage.
#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/case_count.h"
#include "compiler/passes/passes.h"
#include "compiler/testing/compare.h"
#include "compiler/testing/random_inputs.h"
#include "compiler/testing/run_steps.h"
#include "hlo/attribute_keys.h"
#include "hlo/eval/evaluate.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::compiler {
namespace {

// A loop over the rows of x and h. In each iteration it computes y from h[at], stores y in ys[at] if `stores` is true,
// and adds dot(x[from], y) to a sum.
struct FillLoop {
  int64_t trips = 5, rows = 5, batch = 2, m = 3, n = 4;
  std::string at = "copy(i)";      // The row of h and ys.
  std::string from = "copy(at)";   // The row of x.
  std::string first = "0", step = "1";
  bool reads_ys = false;   // y also depends on the row of ys that is to be overwritten.
  bool reads_sum = false;  // y also depends on the sum.
  bool reads_behind_barrier = false;  // Reads both through an opt-barrier of the whole state.
  bool has_initial_sum = false;
  bool swaps = false;  // dot(y, x[from]) instead.
  bool stores = true;

  bool CoversRows() const { return trips == rows; }
  bool HasBarrier() const { return reads_behind_barrier && (reads_ys || reads_sum); }
  bool IsSmall() const { return batch * (m + n) <= 3 * m * n; }
  // If the loop does not store y, the pass makes it store y in addition to x, at `from`.
  bool MovesDot() const {
    const bool has_array = stores ? from == "copy(at)" : batch * n <= 4 * m * n / trips;
    return CoversRows() && !reads_sum && !HasBarrier() && IsSmall() && has_array;
  }
  bool HasUnreadInit() const { return stores ? CoversRows() && !reads_ys && !HasBarrier() : MovesDot(); }
};

// Replaces the letter with a number if its neighbors are brackets or commas.
void SetSizeOf(char letter, int64_t size, std::string* text) {
  std::string result;
  const absl::string_view around = "[](){},";
  for (size_t i = 0; i < text->size(); ++i) {
    const bool is_size = (*text)[i] == letter && i > 0 && i + 1 < text->size() &&
                         around.find((*text)[i - 1]) != absl::string_view::npos &&
                         around.find((*text)[i + 1]) != absl::string_view::npos;
    absl::StrAppend(&result, is_size ? absl::StrCat(size) : std::string(1, (*text)[i]));
  }
  *text = std::move(result);
}

// The text of the template with the loop's instructions and sizes.
std::string TextOfFillLoop(const FillLoop& loop) {
  int64_t first = 0, step = 0;
  EXPECT_TRUE(absl::SimpleAtoi(loop.first, &first) && absl::SimpleAtoi(loop.step, &step));
  const std::string barrier = "state = (s32[], f32SUM, f32[R,B,N], f32[R,B,M], f32[R,B,N]) opt-barrier(s)\n"
                              "  sumnow = f32SUM get-tuple-element(state), index=1\n"
                              "  ysnow = f32[R,B,N] get-tuple-element(state), index=2";
  const std::string row = absl::StrCat("yrow = f32[1,B,N] dynamic-slice(", loop.HasBarrier() ? "ysnow" : "ys",
                                       ", at, zero, zero), dynamic_slice_sizes={1,B,N}");
  const std::string total = absl::StrCat("part = f32[1,1] slice(", loop.HasBarrier() ? "sumnow" : "sum",
                                         "), slice={[0:1], [0:1]}\n  f = f32[] reshape(part)\n"
                                         "  total = f32[1,B,N] broadcast(f), dimensions={}");
  const std::string reads = absl::StrReplaceAll(hlo::TestText("compiler/passes/testdata/loop_fills_and_sums.template"),
                                                {{"BARRIER", loop.HasBarrier() ? barrier : ""},
                                                 {"READS_YS", loop.reads_ys ? row : ""},
                                                 {"READS_SUM", loop.reads_sum ? total : ""}});
  std::string result = absl::StrReplaceAll(reads,
                                           {{"YROW", loop.reads_ys ? "add(y1, yrow)" : "copy(y1)"},
                                            {"YSUM", loop.reads_sum ? "maximum(y2, total)" : "copy(y2)"},
                                            {"DOT", loop.swaps ? "y, xr" : "xr, y"},
                                            {"FILLED", loop.stores ? "dynamic-update-slice(ys, ynew, at, zero, zero)"
                                                                   : "copy(ys)"},
                                            {"INIT", loop.has_initial_sum ? "before" : "none"},
                                            {"END", absl::StrCat(first + step * loop.trips)},
                                            {"AT", loop.at},
                                            {"FROM", loop.from},
                                            {"SUM", loop.swaps ? "[N,M]" : "[M,N]"},
                                            {"BEGIN", loop.first},
                                            {"STEP", loop.step}});
  SetSizeOf('R', loop.rows, &result);
  SetSizeOf('B', loop.batch, &result);
  SetSizeOf('M', loop.m, &result);
  SetSizeOf('N', loop.n, &result);
  return result;
}

FillLoop RandomFillLoop(Random* random) {
  FillLoop loop;
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random->Below(n)); };
  loop.rows = 2 + below(9);
  loop.trips = below(5) == 0 ? loop.rows - 1 : loop.rows;
  loop.batch = 1 + below(3);
  loop.m = 1 + below(6);
  loop.n = 1 + below(6);
  switch (below(5)) {
    case 0:
      break;
    case 1:
      loop.at = "subtract(last, i)";
      break;
    case 2:  // Counts down.
      loop.first = absl::StrCat(loop.rows - 1);
      loop.step = "-1";
      break;
    case 3:  // From -rows to -1, as indices from the end.
      loop.first = absl::StrCat(-loop.rows);
      loop.at = "add(i, rows)";
      break;
    case 4:
      loop.first = "7";
      loop.step = "3";
      loop.at = "minimum(last, i)";  // Most or all iterations access the last row.
      break;
  }
  if (below(6) == 0) loop.from = "subtract(last, at)";
  loop.reads_ys = below(4) == 0;
  loop.reads_sum = below(5) == 0;
  loop.reads_behind_barrier = below(2) == 0;
  loop.has_initial_sum = below(2) == 0;
  loop.swaps = below(2) == 0;
  loop.stores = below(3) != 0;
  return loop;
}

std::unique_ptr<Module> ParseFillLoop(const std::string& text) {
  absl::StatusOr<std::unique_ptr<Module>> module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  if (!module.ok()) return nullptr;
  EXPECT_TRUE(hlo::Verify(**module).ok()) << hlo::Verify(**module) << "\n" << text;
  return *std::move(module);
}

const Instruction* FindFillLoop(const Module& module) {
  for (const auto& instruction : module.entry()->instructions()) {
    if (instruction->opcode() == Opcode::kWhile) return instruction.get();
  }
  return nullptr;
}

TEST(LoopPasses, PreserveTheResults) {
  const auto random = SeededRandom(1);
  int64_t moved = 0, moved_unstored = 0, unread = 0;
  for (uint64_t i = 0; i < CaseCount(150, 2000); ++i) {
    const FillLoop loop = RandomFillLoop(random.get());
    const std::string text = TextOfFillLoop(loop);
    const std::unique_ptr<Module> module = ParseFillLoop(text);
    ASSERT_NE(module, nullptr);
    const std::vector<tensor::Array> inputs = RandomInputs(*module, random.get());
    const auto expected = hlo::Evaluate({module.get()}, {{inputs.begin(), inputs.end()}});
    ASSERT_TRUE(expected.ok()) << expected.status();
    const std::vector<Exactness> exactness(2, Exactness{Agreement::kMagnitudes});
    const auto check = [&](const std::vector<tensor::Array>& found) {
      const absl::Status same = CompareResults(found, ArraysOf((*expected)[0]), exactness);
      ASSERT_TRUE(same.ok()) << same << "\n" << text;
    };
    auto compiled = CompileToSteps(module->Clone(), {}, {.verify = true});
    ASSERT_TRUE(compiled.ok()) << compiled.status() << "\n" << text;
    const auto ran = RunSteps(*compiled, {inputs});
    ASSERT_TRUE(ran.ok()) << ran.status() << "\n" << text;
    check((*ran)[0]);

    PassContext context;
    ASSERT_TRUE(SumDotsAfterLoops(*module, context).ok());
    ASSERT_TRUE(NoteUnreadInits(*module, context).ok());
    ASSERT_TRUE(hlo::Verify(*module).ok()) << hlo::Verify(*module) << "\n" << hlo::PrintText(*module);
    const auto after = hlo::Evaluate({module.get()}, {{inputs.begin(), inputs.end()}});
    ASSERT_TRUE(after.ok()) << after.status();
    check(ArraysOf((*after)[0]));
    if (loop.at == "minimum(last, i)") continue;
    const std::string result = hlo::PrintText(*module);
    const bool has_dot_after = result.find(" dot(", result.find("ENTRY")) != std::string::npos;
    EXPECT_EQ(has_dot_after, loop.MovesDot()) << text << result;
    EXPECT_EQ(!hlo::NotedUnreadInits(*FindFillLoop(*module)).empty(), loop.HasUnreadInit()) << text << result;
    moved += has_dot_after;
    moved_unstored += has_dot_after && !loop.stores;
    unread += loop.HasUnreadInit();
  }
  EXPECT_GT(moved, 10);
  EXPECT_GT(moved_unstored, 3);
  EXPECT_GT(unread, 10);
}

// A loop of 2^16 iterations in which 30,000 dependent scalars compute the row to write. The analysis must give up.
TEST(LoopPasses, LongChainsOfScalarsAreNotFollowed) {
  std::string chain = "m0 = s32[] minimum(i, last)\n";
  for (int k = 1; k < 30000; ++k) absl::StrAppend(&chain, "  m", k, " = s32[] minimum(m", k - 1, ", last)\n");
  const std::string text = TextOfFillLoop({.trips = 1 << 16, .rows = 1 << 16, .batch = 1, .m = 1, .n = 1});
  const std::unique_ptr<Module> module = ParseFillLoop(
      absl::StrReplaceAll(text, {{"at = s32[] copy(i)\n", absl::StrCat(chain, "  at = s32[] copy(m29999)\n")}}));
  ASSERT_NE(module, nullptr);
  PassContext context;
  ASSERT_TRUE(NoteUnreadInits(*module, context).ok());
  EXPECT_TRUE(hlo::NotedUnreadInits(*FindFillLoop(*module)).empty());
}

// The initial value of the array is neither computed by a kernel nor copied: its memory is only reserved.
TEST(LoopPasses, UnreadInitsAreNotComputed) {
  auto compiled = CompileToSteps(ParseFillLoop(TextOfFillLoop({.trips = 20, .rows = 20})), {}, {.verify = true});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (const LinearOp& op : compiled->program.ops) {
    if (op.kind == LinearOp::Kind::kWhile) break;
    EXPECT_NE(op.kind, LinearOp::Kind::kKernel) << ToString(compiled->program);
    for (const int output : op.outputs) {
      const bool is_large = compiled->program.values[output].bytes >= 20 * 2 * 4 * 4;
      EXPECT_TRUE(!is_large || op.kind == LinearOp::Kind::kReserve) << ToString(compiled->program);
    }
  }
}

}  // namespace
}  // namespace xlad::compiler
