// Reductions, windows, sorts, scatters and scans: results computed by hand, and typed loops against calls per element.
#include <random>

#include "base/file_system.h"
#include "hlo/eval/test_programs.h"
#include "hlo/testing/fuzz_time.h"

namespace xlad::hlo {
namespace {

using testing::Constant;
using testing::ExpectSame;
using testing::InstructionCase;
using testing::Program;

// The text of the reducers and comparators that the tests use.
const std::string& Computations() {
  static const std::string text = RealFileSystem().Read("hlo/testdata/reducers.hlo").value();
  return text;
}

class ReduceTest : public ::testing::TestWithParam<InstructionCase> {};

TEST_P(ReduceTest, HasTheExpectedElements) { testing::CheckInstruction(GetParam(), Computations()); }

const std::string kTwoRows = "s32[2,3] {{1, 2, 3}, {4, 5, 6}}";
const InstructionCase kReduceTestRows[] = {
    {"reduce", {kTwoRows, "s32[] 100"}, "s32[2] {106, 115}", "dimensions={1}, to_apply=add"},
    {"reduce", {kTwoRows, "s32[] 0"}, "s32[3] {5, 7, 9}", "dimensions={0}, to_apply=add"},
    {"reduce", {kTwoRows, "s32[] 0"}, "s32[] 21", "dimensions={0,1}, to_apply=add"},
    {"reduce", {kTwoRows, "s32[] 0"}, "s32[2] {6, 15}", "dimensions={1}, to_apply=slow_add"},
    {"reduce", {kTwoRows, "s32[] 0"}, "s32[2] {-6, -15}", "dimensions={1}, to_apply=minus"},
    {"reduce", {"s32[0,2] {}", "s32[] 7"}, "s32[2] {7, 7}", "dimensions={0}, to_apply=add"},
    {"reduce", {kTwoRows, "s32[] 0"}, kTwoRows, "dimensions={}, to_apply=add"},
    {"reduce-window", {"s32[5] {1, 2, 3, 4, 5}", "s32[] 0"}, "s32[4] {3, 5, 7, 9}", "window={size=2}, to_apply=add"},
    {"reduce-window",
     {"s32[5] {1, 2, 3, 4, 5}", "s32[] 10"},
     "s32[3] {11, 15, 19}",
     "window={size=2 stride=2 pad=1_0}, to_apply=add"},
    {"reduce-window",
     {"s32[3] {1, 2, 3}", "s32[] 0"},
     "s32[4] {1, 2, 2, 3}",
     "window={size=2 lhs_dilate=2}, to_apply=add"},
    {"reduce-window",
     {"s32[5] {1, 2, 3, 4, 5}", "s32[] 0"},
     "s32[3] {4, 6, 8}",
     "window={size=2 rhs_dilate=2}, to_apply=add"},
    {"reduce-window",
     {"s32[4] {1, 2, 3, 4}", "s32[] 0"},
     "s32[4] {1, 3, 6, 10}",
     "window={size=4 pad=3_0}, to_apply=slow_add"},
    {"select-and-scatter",
     {"s32[6] {1, 5, 2, 7, 7, 3}", "s32[3] {10, 20, 30}", "s32[] 0"},
     "s32[6] {0, 10, 0, 20, 30, 0}",
     "window={size=2 stride=2}, select=ge, scatter=add"},
    {"select-and-scatter",
     {"s32[3] {1, 5, 2}", "s32[2] {10, 20}", "s32[] 1"},
     "s32[3] {1, 31, 1}",
     "window={size=2}, select=ge, scatter=slow_add"},
    {"sort", {"s32[5] {3, 1, 2, 1, 0}"}, "s32[5] {0, 1, 1, 2, 3}", "dimensions={0}, to_apply=lt"},
    {"sort", {"s32[2,2] {{3, 1}, {2, 4}}"}, "s32[2,2] {{2, 1}, {3, 4}}", "dimensions={0}, to_apply=lt"},
    {"scatter",
     {"s32[4] {0, 0, 0, 0}", "s32[3,1] {{1}, {1}, {9}}", "s32[3] {5, 6, 7}"},
     "s32[4] {0, 11, 0, 0}",
     "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
     "to_apply=add"},
    {"scatter",
     {"s32[4] {0, 0, 0, 0}", "s32[2,1] {{1}, {1}}", "s32[2] {5, 6}"},
     "s32[4] {0, 6, 0, 0}",
     "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
     "to_apply=replace"},
    // The updates are floats of a different width than the operand and the parameters.
    {"scatter",
     {"f64[4] {1, 2, 3, 4}", "s32[2,1] {{1}, {3}}", "bf16[2] {5, 6}"},
     "f64[4] {1, 5, 3, 6}",
     "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
     "to_apply=replace_f32"},
    {"scatter",
     {"s32[4] {0, 0, 0, 0}", "s32[2,1] {{2}, {3}}", "s32[2,2] {{5, 6}, {7, 8}}"},
     "s32[4] {0, 0, -5, -6}",
     "update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
     "to_apply=minus"},
    {"map", {"s32[2] {1, 2}", "s32[2] {10, 20}"}, "s32[2] {-9, -18}", "dimensions={0}, to_apply=minus"},
};
INSTANTIATE_TEST_SUITE_P(Rows, ReduceTest, ::testing::ValuesIn(kReduceTestRows));

// The elements may have a narrower type than the accumulator.
TEST(Mixed, ReducersMayBeWiderThanTheirInputs) {
  const auto module = ParseText(R"(
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e { x = f16[2,3] constant({{1, 2, 3}, {4, 5, 6}})
  y = f32[] constant(0.25)
  r = f32[2] reduce(x, y), dimensions={1}, to_apply=add
  w = f32[2,2] reduce-window(x, y), window={size=1x2}, to_apply=add
  ROOT t = (f32[2], f32[2,2]) tuple(r, w) })");
  ASSERT_TRUE(module.ok()) << module.status();
  const auto result = Evaluate(**module, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tuple[0].array, tensor::Array::FromValues<float>(ElementType::kF32, {2}, {6.25f, 15.25f}));
  EXPECT_EQ(result->tuple[1].array,
            tensor::Array::FromValues<float>(ElementType::kF32, {2, 2}, {3.25f, 5.25f, 9.25f, 11.25f}));
}

TEST(Variadic, ArgmaxByReduceAndWindow) {
  const auto module = Program(std::string("HloModule m\n") + Computations() + R"(
ENTRY e { x = s32[2,3] constant({{1, 9, 9}, {4, 2, 3}})
  i = s32[2,3] iota(), iota_dimension=1
  low = s32[] constant(-100)
  none = s32[] constant(-1)
  r = (s32[2], s32[2]) reduce(x, i, low, none), dimensions={1}, to_apply=argmax
  w = (s32[2,2], s32[2,2]) reduce-window(x, i, low, none), window={size=1x2}, to_apply=argmax
  ri = s32[2] get-tuple-element(r), index=1
  wi = s32[2,2] get-tuple-element(w), index=1
  ROOT t = (s32[2], s32[2,2]) tuple(ri, wi) })");
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(result->tuple[0], Constant("s32[2] {1, 0}"), "reduce");
  ExpectSame(result->tuple[1], Constant("s32[2,2] {{1, 1}, {0, 2}}"), "window");
}

TEST(Variadic, SortCarriesItsSecondOperandStably) {
  const auto module = Program(std::string("HloModule m\n") + Computations() + R"(
ENTRY e { k = s32[5] constant({2, 1, 2, 1, 0})
  i = s32[5] iota(), iota_dimension=0
  s = (s32[5], s32[5]) sort(k, i), dimensions={0}, to_apply=pair_lt, is_stable=true
  ROOT r = s32[5] get-tuple-element(s), index=1 })");
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("s32[5] {4, 1, 3, 0, 2}"), "order");
}

TEST(Scan, RunsForwardsAndBackwards) {
  for (const bool reverse : {false, true}) {
    const auto module = Program(std::string("HloModule m\n") + Computations() + R"(
ENTRY e { x = s32[3] constant({1, 2, 3})
  c = s32[] constant(10)
  ROOT s = (s32[3], s32[]) scan(x, c), dimensions={0}, num_carries=1, )" +
                                (reverse ? "is_reverse=true, " : "") + "to_apply=running }");
    const auto result = testing::Run(*module);
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectSame(result->tuple[0], Constant(reverse ? "s32[3] {16, 30, 39}" : "s32[3] {11, 26, 48}"), "outputs");
    ExpectSame(result->tuple[1], Constant("s32[] 16"), "carry");
  }
}

TEST(Topk, UsesTheTotalOrder) {
  const auto module = Program(R"(HloModule m
ENTRY e { x = f32[2,4] constant({{1, nan, 3, 3}, {-0, 0, -1, -inf}})
  ROOT t = (f32[2,3], s32[2,3]) topk(x), k=3, largest=true })");
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(result->tuple[0], Constant("f32[2,3] {{nan, 3, 3}, {0, -0, -1}}"), "values");
  ExpectSame(result->tuple[1], Constant("s32[2,3] {{1, 2, 3}, {1, 0, 2}}"), "indices");
}

// The evaluator refuses what the verifier refuses.
TEST(Topk, RefusesComplexNumbers) {
  const auto module = Program(R"(HloModule m
ENTRY e { x = c64[3] constant({(1, 0), (3, 0), (2, 0)})
  ROOT t = (c64[2], s32[2]) topk(x), k=2, largest=true })");
  const auto result = testing::Run(*module);
  EXPECT_TRUE(absl::StrContains(result.status().message(), "expected element type pred, integer or float"))
      << result.status();
}

// The scatter computation has no typed loop and is called for each of 2^14 windows. If each call copied the result, the
// copies would have 2^36 bytes, which takes about 8 s.
TEST(SelectAndScatter, DoesNotCopyTheResultForEachWindow) {
  const auto module = Program(R"(HloModule m
always { a = u8[] parameter(0)
  b = u8[] parameter(1)
  ROOT t = pred[] constant(true) }
slow_add { a = u8[] parameter(0)
  b = u8[] parameter(1)
  c = u8[] add(b, a)
  ROOT d = u8[] negate(c) }
ENTRY e { n = u8[] constant(3)
  x = u8[4194304] broadcast(n), dimensions={}
  s = u8[16384] broadcast(n), dimensions={}
  ROOT r = u8[4194304] select-and-scatter(x, s, n), window={size=4 stride=256}, select=always, scatter=slow_add })");
  const FuzzTime limit(5);
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto values = result->array.values<uint8_t>();
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i % 256 == 0 ? 250 : 3) << i;
}

// A sum of a million f32 numbers and a sum of bf16 numbers are computed in double and rounded once.
TEST(Reduce, SumsInDouble) {
  const auto module = Program(R"(HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
add16 { a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT s = bf16[] add(a, b) }
ENTRY e { c = f32[] constant(0.1)
  z = f32[] constant(0)
  x = f32[1000,1000] broadcast(c), dimensions={}
  r = f32[] reduce(x, z), dimensions={0,1}, to_apply=add
  d = bf16[] constant(1)
  y = bf16[1000] broadcast(d), dimensions={}
  w = bf16[] constant(0)
  q = bf16[] reduce(y, w), dimensions={0}, to_apply=add16
  ROOT t = (f32[], bf16[]) tuple(r, q) })");
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(result->tuple[0], Constant("f32[] 100000.0015"), "f32");
  ExpectSame(result->tuple[1], Constant("bf16[] 1000"), "bf16");
}

// Random windows, by a typed loop and by calls of an equivalent reducer that has no typed loop.
TEST(ReduceWindow, LoopsAndCallsAgree) {
  std::mt19937 random(5);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 60; ++round) {
    std::string window[2][5], sizes;
    int result[2];
    for (int d = 0; d < 2; ++d) {
      const int size = pick(1, 6), element = pick(1, 3), stride = pick(1, 3), dilate = pick(1, 2), base = pick(1, 2);
      const int low = pick(0, 3), high = pick(0, 3), spread = (element - 1) * dilate + 1;
      const int padded = (size - 1) * base + 1 + low + high;
      result[d] = padded < spread ? 0 : (padded - spread) / stride + 1;
      const int parts[] = {element, stride, dilate, base};
      for (int i = 0; i < 4; ++i) window[d][i] = std::to_string(parts[i]);
      window[d][4] = std::to_string(low) + "_" + std::to_string(high);
      sizes += (d == 0 ? "" : ",") + std::to_string(size);
    }
    const auto both = [&](int i) { return window[0][i] + "x" + window[1][i]; };
    const std::string out = std::to_string(result[0]) + "," + std::to_string(result[1]);
    const auto program = [&](const std::string& reducer) {
      return Program(std::string("HloModule m\n") + Computations() + "ENTRY e { i = s32[" + sizes +
                     "] iota(), iota_dimension=0\n  j = s32[" + sizes + "] iota(), iota_dimension=1\n  ten = s32[] " +
                     "constant(10)\n  t = s32[" + sizes + "] broadcast(ten), dimensions={}\n  it = s32[" + sizes +
                     "] multiply(i, t)\n  x = s32[" + sizes + "] add(it, j)\n  ROOT r = s32[" + out +
                     "] reduce-window(x, ten), window={size=" + both(0) + " stride=" + both(1) + " pad=" + both(4) +
                     " lhs_dilate=" + both(3) + " rhs_dilate=" + both(2) + "}, to_apply=" + reducer + " }");
    };
    const auto fast = testing::Run(*program("add")), slow = testing::Run(*program("slow_add"));
    ASSERT_TRUE(fast.ok()) << fast.status();
    ASSERT_TRUE(slow.ok()) << slow.status();
    ExpectSame(*fast, *slow, both(0));
  }
}

// An inconsistent comparator must neither hang nor read out of bounds.
TEST(Sort, InconsistentComparatorsTerminate) {
  const auto module = Program(R"(HloModule m
always { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT s = pred[] constant(true) }
ENTRY e { i = s32[1000] iota(), iota_dimension=0
  ROOT r = s32[1000] sort(i), dimensions={0}, to_apply=always })");
  EXPECT_TRUE(testing::Run(*module).ok());
}

}  // namespace
}  // namespace xlad::hlo
