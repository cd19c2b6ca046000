// Sorts and topk, by merging and by a network (compiler/codegen/llvm/sort_network.h).
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/kernel/object_emitter.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

std::string SortProgram(const std::string& type, const std::string& shape, int dimension) {
  return Program(absl::StrCat("x = ", type, "[", shape, "] parameter(0)\n ROOT r = ", type, "[", shape,
                              "] sort(x), dimensions={", dimension, "}, is_stable=true, to_apply=LT"),
                 type);
}

std::string TopkProgram(const std::string& type, int64_t row, int64_t kept, bool largest) {
  return absl::StrReplaceAll(
      R"(HloModule m
ENTRY e {
  x = $[3,ROW] parameter(0)
  ROOT r = ($[3,KEPT], s32[3,KEPT]) topk(x), k=KEPT, largest=LARGEST
})",
      {{"$", type}, {"ROW", absl::StrCat(row)}, {"KEPT", absl::StrCat(kept)}, {"LARGEST", largest ? "true" : "false"}});
}

// The comparator of jax.numpy.argsort: all zeros are equal, and so are all NaNs, which come last.
std::string ArgsortProgram(const std::string& type, const std::string& shape, int dimension) {
  return absl::StrReplaceAll(hlo::TestText("tests/compiled/testdata/argsort.hlo"),
                             {{"$", type}, {"SHAPE", shape}, {"DIM", absl::StrCat(dimension)}});
}

// A sort of an array of `type` and of one of s32. The comparator has the elements a and b of the first array, and x and
// y of the second one. It computes the instructions `values` and then the result `compared`.
std::string SortByProgram(const std::string& compared, const std::string& type, const std::string& shape,
                          const std::string& values = "") {
  return absl::StrReplaceAll(R"(HloModule m
before {
  a = $[] parameter(0)
  b = $[] parameter(1)
  x = s32[] parameter(2)
  y = s32[] parameter(3)
  VALUES
  ROOT r = pred[] COMPARED
}
ENTRY e {
  k = $[SHAPE] parameter(0)
  v = s32[SHAPE] parameter(1)
  ROOT r = ($[SHAPE], s32[SHAPE]) sort(k, v), dimensions={1}, is_stable=true, to_apply=before
})",
                             {{"$", type}, {"SHAPE", shape}, {"VALUES", values}, {"COMPARED", compared}});
}

// Floats that a comparator compares by LT have no total order, and keys of a network have at most 32 bits.
TEST(Sort, ByMerging) {
  Batch batch;
  batch.Add(SortProgram("f32", "5,9", 0));
  batch.Add(SortProgram("f32", "5,9", 1));
  batch.Add(SortProgram("f32", "1,3", 0));
  batch.Add(SortProgram("s16", "2049", 0));  // The row is too long for a network.
  batch.Add(SortByProgram("compare(a, b), direction=LT", "s64", "4,40"));
  batch.Add(SortByProgram("compare(b, a), direction=LT, type=TOTALORDER", "f64", "3,20"), {}, /*specials=*/true);
  batch.Add(TopkProgram("s64", 50, 30, true));
  batch.Run();
}

// Eight rows are sorted at once. Rows of any length are sorted, with positions as the second key.
TEST(Sort, ByANetwork) {
  Batch batch;
  batch.Add(ArgsortProgram("f32", "9,20", 1), {}, /*specials=*/true);
  batch.Add(ArgsortProgram("bf16", "2,37,5", 1), {}, /*specials=*/true);
  batch.Add(SortProgram("u32", "33,3", 0), {}, /*specials=*/true);
  batch.Add(SortProgram("s8", "2,100", 1), {}, /*specials=*/true);
  batch.Add(SortProgram("pred", "17,2", 1));
  batch.Add(SortByProgram("compare(b, a), direction=LT", "s32", "4,40"));
  batch.Add(SortByProgram("compare(b, a), direction=GT", "s32", "4,40"));
  // The key is the second operand, and the order is descending.
  batch.Add(SortByProgram("compare(x, y), direction=GT", "s32", "4,40"));
  batch.Add(TopkProgram("f32", 50, 30, true), {}, /*specials=*/true);
  batch.Add(TopkProgram("s16", 50, 30, false), {}, /*specials=*/true);
  batch.Run();
}

struct EmittedProgram {
  EmittedKernel kernel;
  std::string ir;
};

EmittedProgram EmitProgram(const std::string& text, int64_t wanted_tiles) {
  const auto module = *hlo::ParseText(text);
  const auto emitter = *ObjectEmitter::Create(Target());
  KernelRequest request;
  request.root = AsKernel(module.get());
  request.symbol = "sort";
  request.wanted_tiles = wanted_tiles;
  const auto kernel = emitter->EmitKernel(request);
  EXPECT_TRUE(kernel.ok()) << kernel.status() << "\n" << text;
  return {kernel.value_or(EmittedKernel()), emitter->IrText()};
}

// Whether the kernel of a program compares vectors of numbers, as a network does.
bool IsNetwork(const std::string& text) {
  return absl::StrContains(EmitProgram(text, /*wanted_tiles=*/1).ir, "@llvm.smin.v8i64");
}

TEST(Sort, NetworksAreForShortRowsWithKeys) {
  EXPECT_TRUE(IsNetwork(ArgsortProgram("f32", "9,20", 1)));
  EXPECT_TRUE(IsNetwork(SortProgram("u32", "2048,3", 0)));
  EXPECT_TRUE(IsNetwork(TopkProgram("f32", 50, 30, true)));
  EXPECT_FALSE(IsNetwork(SortProgram("u32", "2049,3", 0)));
  EXPECT_FALSE(IsNetwork(SortProgram("s64", "9,20", 1)));
  EXPECT_FALSE(IsNetwork(SortProgram("f32", "9,20", 1)));
  EXPECT_FALSE(IsNetwork(TopkProgram("f32", 50, 4, true)));
  EXPECT_FALSE(IsNetwork(TopkProgram("s64", 50, 30, true)));
  EXPECT_TRUE(IsNetwork(SortByProgram("compare(b, a), direction=GT", "s32", "4,40")));
  EXPECT_TRUE(IsNetwork(SortByProgram("compare(x, y), direction=GT", "s64", "4,40")));
  for (const char* other : {"LE", "GE", "EQ", "NE"}) {
    EXPECT_FALSE(IsNetwork(SortByProgram(absl::StrCat("compare(a, b), direction=", other), "s32", "4,40"))) << other;
  }
  EXPECT_FALSE(IsNetwork(SortByProgram("compare(a, b), direction=LT, type=TOTALORDER", "f64", "4,40")));
}

// A tile of a network has 64 bytes of scratch memory for each element of a row. If there are more than eight tiles,
// they have at most a quarter as much memory as the array. Here, that is one byte for each element of the array.
TEST(Sort, ScratchOfNetworks) {
  const auto emit = [](int64_t rows) {
    return EmitProgram(SortProgram("u32", absl::StrCat(rows, ",256"), 1), /*wanted_tiles=*/1000).kernel;
  };
  EXPECT_EQ(emit(64).tiles, 8);
  EXPECT_EQ(emit(64).scratch_bytes, 8 * 256 * 64);
  EXPECT_EQ(emit(512).scratch_bytes, 512 * 256);
  EXPECT_EQ(emit(1024).scratch_bytes, 1024 * 256);
  EXPECT_EQ(emit(1 << 20).tiles, 64);
}

struct Comparator {
  const char *values, *compared;
};

// Comparators that are not one function of both elements, or not of elements of the same operand.
constexpr Comparator kComparatorsWithoutKey[] = {
    {"nb = s32[] negate(b)", "compare(a, nb), direction=LT"},
    {"na = s32[] negate(a)", "compare(na, b), direction=GT"},
    {"", "compare(a, y), direction=LT"},
    {"", "compare(x, b), direction=GT"},
    {"p = s32[] add(a, x) q = s32[] add(b, y)", "compare(p, q), direction=LT"},
    {"p = s32[] add(a, x) q = s32[] add(b, x)", "compare(p, q), direction=LT"},
    // The two functions differ in a constant, in an attribute, or in the order of their operands.
    {"one = s32[] constant(1) two = s32[] constant(2) p = s32[] add(a, one) q = s32[] add(b, two)",
     "compare(p, q), direction=LT"},
    {"zero = s32[] constant(0) p = pred[] compare(a, zero), direction=LT q = pred[] compare(b, zero), direction=GT",
     "compare(p, q), direction=LT"},
    {"one = s32[] constant(1) p = s32[] subtract(a, one) q = s32[] subtract(one, b)", "compare(p, q), direction=LT"},
};

// A comparator that has no key is applied to pairs of elements.
TEST(Sort, OtherComparators) {
  for (const auto& [values, compared] : kComparatorsWithoutKey) {
    const std::string text = SortByProgram(compared, "s32", "2,2", values);
    EXPECT_FALSE(IsNetwork(text)) << text;
  }
  Batch batch;
  // The first comparator defines no order, so a row has two elements: the result depends on one comparison.
  batch.Add(SortByProgram("compare(a, y), direction=LT", "s32", "2,2"));
  batch.Add(SortByProgram("compare(p, q), direction=LT", "s32", "4,40", "p = s32[] add(a, x) q = s32[] add(b, y)"));
  batch.Run();
}

// The first elements are inserted into a short list if there are few of them.
TEST(Sort, FewOfTopk) {
  Batch batch;
  batch.Add(TopkProgram("f32", 19, 4, true), {}, /*specials=*/true);
  batch.Add(TopkProgram("bf16", 19, 4, false));
  batch.Add(TopkProgram("u8", 19, 4, true));
  batch.Add(TopkProgram("s32", 19, 4, false));
  batch.Run();
}

}  // namespace
}  // namespace xlad::compiler
