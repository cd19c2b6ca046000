// Objects of earlier compilations: code is the same with and without them, and only what has changed is compiled.
#include "compiler/codegen/object_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/testing/case_count.h"
#include "compiler/compile.h"
#include "compiler/testing/for_seeds.h"
#include "compiler/testing/memory_objects.h"
#include "compiler/testing/random_program.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "hlo/wire/proto.h"

namespace xlad::compiler {
namespace {

CompileRequest RequestFor(const Module& module) {
  CompileRequest request;
  request.set_partitioned_module(*hlo::SerializeProto(module));
  return request;
}

CompileResult CompileWith(const CompileRequest& request, ObjectCache* objects) {
  CompileOptions options;
  options.objects = objects;
  auto result = CompileWithListings(request, options, false);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : CompileResult();
}

CompileResult CompileText(const std::string& text, ObjectCache* objects) {
  auto module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return CompileWith(RequestFor(**module), objects);
}

// All programs share one cache. Every program is compiled twice with it. The second time, the cache has all of its
// objects.
TEST(ObjectCache, RandomProgramsHaveTheSameCodeWithEveryCache) {
  MemoryObjects objects;
  int64_t reused = 0;
  const bool all_tried = ForSeeds(0, CaseCount(40, 200), [&](uint64_t seed) {
    const RandomModule made = RandomLocalProgram(seed, 3 + static_cast<int>(seed % 25), seed % 3 == 0 ? 4 : 1);
    const CompileRequest request = RequestFor(*made.module);
    const CompileResult plain = CompileWith(request, nullptr);
    const std::string expected = plain.executable.SerializeAsString();
    const CompileResult first = CompileWith(request, &objects), second = CompileWith(request, &objects);
    EXPECT_EQ(first.executable.SerializeAsString(), expected);
    EXPECT_EQ(second.executable.SerializeAsString(), expected);
    EXPECT_EQ(first.compiled_objects + first.reused_objects, plain.compiled_objects);
    EXPECT_EQ(second.compiled_objects, 0);
    EXPECT_EQ(second.reused_objects, plain.compiled_objects);
    reused += first.reused_objects;
  });
  if (all_tried) EXPECT_GT(reused, 0);  // Programs have kernels in common.
}

// Layers of different sizes, each of which is a kernel. `op` is an operation of layer 5.
std::string Layers(const std::string& op, const std::string& prefix = "") {
  std::string text = absl::StrCat("HloModule layers\nENTRY e {\n", prefix), shapes, results;
  for (int i = 0; i < 20; ++i) {
    const std::string shape = absl::StrCat("f32[", 100 + i, "]");
    absl::StrAppend(&text, "  x", i, " = ", shape, " parameter(", i, ")\n  t", i, " = ", shape, " ",
                    i == 5 ? op : "tanh", "(x", i, ")\n  y", i, " = ", shape, " multiply(t", i, ", x", i, ")\n");
    absl::StrAppend(&shapes, i == 0 ? "" : ", ", shape);
    absl::StrAppend(&results, i == 0 ? "y" : ", y", i);
  }
  return absl::StrCat(text, "  ROOT r = (", shapes, ") tuple(", results, ")\n}\n");
}

TEST(ObjectCache, OneChangedOpIsOneCompiledKernel) {
  MemoryObjects objects;
  EXPECT_EQ(CompileText(Layers("tanh"), &objects).compiled_objects, 20);
  EXPECT_EQ(CompileText(Layers("tanh"), &objects).compiled_objects, 0);
  for (const char* op : {"exponential", "negate", "log"}) {
    const CompileResult changed = CompileText(Layers(op), &objects);
    EXPECT_EQ(changed.compiled_objects, 1) << op;
    EXPECT_EQ(changed.reused_objects, 19) << op;
    EXPECT_EQ(changed.executable.SerializeAsString(), CompileText(Layers(op), nullptr).executable.SerializeAsString());
  }
  // Names and numbers of instructions and kernels are not parts of the code.
  const std::string renamed = absl::StrReplaceAll(Layers("tanh"), {{"  t", "  other"}, {"(t", "(other"}});
  EXPECT_EQ(CompileText(renamed, &objects).compiled_objects, 0);
  const std::string extra = absl::StrReplaceAll(
      Layers("tanh", "  z = f32[77] parameter(20)\n  a = f32[77] sine(z)\n"),
      {{"ROOT r = (", "ROOT r = (f32[77], "}, {"tuple(", "tuple(a, "}});
  EXPECT_EQ(CompileText(extra, &objects).compiled_objects, 1);
}

TEST(ObjectCache, EqualKernelsAreCompiledOnce) {
  const CompileResult result = CompileText(R"(HloModule equal
ENTRY e {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  a = f32[64] tanh(x)
  b = f32[64] tanh(y)
  ROOT r = (f32[64], f32[64]) tuple(a, b)
})", nullptr);
  EXPECT_LE(result.compiled_objects, 1);
}

// A program with the instruction `b`, which reads the parameters y and z and may call the computation `called`.
std::string Alone(const std::string& shape, const std::string& b, const std::string& called) {
  return absl::StrCat("HloModule alone\n", called, "ENTRY e {\n  y = f32[4] parameter(0)\n  z = f32[4] parameter(1)\n",
                      b, "  ROOT r = (", shape, ") tuple(b)\n}\n");
}

// The same program with another kernel, whose estimated time is 330 microseconds.
std::string BesideALargeKernel(const std::string& shape, const std::string& b, const std::string& called) {
  const std::string large = "  x = f32[1000000] parameter(2)\n  a = f32[1000000] tanh(x)\n";
  return absl::StrReplaceAll(Alone(shape, b, called),
                             {{"  ROOT r = (", large + "  ROOT r = (f32[1000000], "}, {"tuple(b)", "tuple(a, b)"}});
}

// Whether the kernel `b` is negligible beside the large kernel. Alone, it is not negligible. Negligible kernels are not
// optimized, so their objects have other keys.
bool IsNegligible(const std::string& shape, const std::string& b, const std::string& called = "") {
  MemoryObjects objects;
  EXPECT_EQ(CompileText(BesideALargeKernel(shape, b, called), &objects).compiled_objects, 2) << b;
  EXPECT_EQ(CompileText(BesideALargeKernel(shape, b, called), &objects).reused_objects, 2) << b;
  const CompileResult alone = CompileText(Alone(shape, b, called), &objects);
  EXPECT_EQ(alone.compiled_objects + alone.reused_objects, 1) << b;
  EXPECT_EQ(CompileText(Alone(shape, b, called), &objects).reused_objects, 1) << b;
  return alone.compiled_objects == 1;
}

TEST(ObjectCache, NegligibleKernelsHaveOtherObjects) { EXPECT_TRUE(IsNegligible("f32[4]", "  b = f32[4] sine(y)\n")); }

// The time of a sort is not known.
TEST(ObjectCache, SortsAreNotNegligible) {
  const std::string less =
      "less {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT l = pred[] compare(p, q), direction=LT\n}\n";
  EXPECT_FALSE(IsNegligible("f32[4]", "  b = f32[4] sort(y), dimensions={0}, to_apply=less\n", less));
}

// The operations on four elements would be negligible, but they are computed for each of 600 elements of the result.
TEST(ObjectCache, MembersThatAreComputedOftenAreNotNegligible) {
  const std::string few =
      "  f = f32[4] add(y, z)\n  g = f32[4] multiply(f, y)\n  h = f32[4] subtract(g, z)\n"
      "  i = f32[4] maximum(h, y)\n  j = f32[4] multiply(i, z)\n";
  EXPECT_FALSE(IsNegligible("f32[150,4]", few + "  b = f32[150,4] broadcast(j), dimensions={1}\n"));
  EXPECT_TRUE(IsNegligible("f32[4]", few + "  b = f32[4] add(j, y)\n"));
}

// 20 kernels, each of which takes a small share of the step, take more than 1 % together.
TEST(ObjectCache, NegligibleKernelsTakeLittleTogether) {
  MemoryObjects objects;
  const std::string beside =
      absl::StrReplaceAll(Layers("tanh", "  z = f32[4000000] parameter(20)\n  a = f32[4000000] tanh(z)\n"),
                          {{"ROOT r = (", "ROOT r = (f32[4000000], "}, {"tuple(", "tuple(a, "}});
  EXPECT_EQ(CompileText(beside, &objects).compiled_objects, 21);
  const CompileResult alone = CompileText(Layers("tanh"), &objects);
  EXPECT_GE(alone.compiled_objects, 1) << "none is negligible";
  EXPECT_GE(alone.reused_objects, 10) << "too many are negligible";
}

// A program whose objects are all in the cache or negligible has no object that is compiled quickly only for now.
TEST(ObjectCache, NegligibleKernelsAreNotQuick) {
  MemoryObjects objects;
  CompileOptions options;
  options.objects = &objects;
  options.quick = true;
  const auto is_quick = [&](const std::string& text) {
    const auto result = CompileWithListings(RequestFor(**hlo::ParseText(text)), options, false);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() && result->executable.quick();
  };
  const std::string first = BesideALargeKernel("f32[4]", "  b = f32[4] sine(y)\n", "");
  EXPECT_TRUE(is_quick(first));
  EXPECT_EQ(CompileText(first, &objects).compiled_objects, 1) << "the negligible kernel is not reused";
  EXPECT_FALSE(is_quick(first));
  EXPECT_FALSE(is_quick(BesideALargeKernel("f32[4]", "  b = f32[4] cosine(y)\n", "")));
}

// The largest number of calls of one kernel of several tiles in the native programs of a program.
int64_t MostCallsOfAKernel(const std::string& text) {
  const auto module = *hlo::ParseText(text);
  const auto listed = CompileWithListings(RequestFor(*module), CompileOptions(), /*want_listings=*/true);
  EXPECT_TRUE(listed.ok()) << listed.status();
  if (!listed.ok()) return 0;
  std::map<absl::string_view, int64_t> calls;  // By the symbol of the kernel, which is an argument of run_tiles.
  const std::vector<absl::string_view> pieces = absl::StrSplit(listed->ir, "ptr @x");
  for (size_t i = 1; i < pieces.size(); ++i) ++calls[pieces[i].substr(0, pieces[i].find(','))];
  int64_t most = 0;
  for (const auto& [symbol, count] : calls) most = std::max(most, count);
  return most;
}

// Two kernels of the loop's body have equal code, although their arrays have other dimensions. The arrays are so large
// that the kernels are called by the loop's program, and not inlined into it.
TEST(ObjectCache, EqualKernelsOfALoopAreCompiledOnce) {
  const std::string text = R"(HloModule equal
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
cond { p = (s32[], f32[128,512], f32[512,128]) parameter(0) i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(300) ROOT c = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[128,512], f32[512,128]) parameter(0) i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1) j = s32[] add(i, one) zero = f32[] constant(0)
  x = f32[128,512] get-tuple-element(p), index=1 y = f32[512,128] get-tuple-element(p), index=2
  s = f32[] reduce(x, zero), dimensions={0,1}, to_apply=sum
  t = f32[] reduce(y, zero), dimensions={0,1}, to_apply=sum
  of_s = f32[512,128] broadcast(s), dimensions={} of_t = f32[128,512] broadcast(t), dimensions={}
  next_x = f32[128,512] subtract(x, of_t) next_y = f32[512,128] subtract(y, of_s)
  ROOT r = (s32[], f32[128,512], f32[512,128]) tuple(j, next_x, next_y) }
ENTRY e { x = f32[128,512] parameter(0) y = f32[512,128] parameter(1) zero = s32[] constant(0)
  t = (s32[], f32[128,512], f32[512,128]) tuple(zero, x, y)
  ROOT w = (s32[], f32[128,512], f32[512,128]) while(t), condition=cond, body=body })";
  MemoryObjects objects;
  const int64_t compiled = CompileText(text, &objects).compiled_objects;
  EXPECT_GT(compiled, 1);
  EXPECT_EQ(compiled, static_cast<int64_t>(objects.size()));
  EXPECT_EQ(CompileText(text, &objects).compiled_objects, 0);
  EXPECT_GE(MostCallsOfAKernel(text), 2);
}

// A loop on arrays of `size` elements, whose body has one op that differs. It has too many iterations to be unrolled.
std::string Loop(int64_t size, const std::string& op) {
  return absl::StrReplaceAll(hlo::TestText("compiler/codegen/testdata/loop_of_two_ops.template"),
                             {{"$N", absl::StrCat(size)}, {"$OP", op}});
}

// If an op of a loop's body changes, the code with the cache is the same as without it.
TEST(ObjectCache, ChangedLoops) {
  for (const int64_t size : {16, 4 << 20}) {
    MemoryObjects objects;
    const int64_t all = CompileText(Loop(size, "tanh"), &objects).compiled_objects;
    EXPECT_EQ(CompileText(Loop(size, "tanh"), &objects).compiled_objects, 0);
    const CompileResult changed = CompileText(Loop(size, "exponential"), &objects);
    EXPECT_GE(changed.compiled_objects, 1);
    EXPECT_LE(changed.compiled_objects, all);
    EXPECT_EQ(changed.executable.SerializeAsString(),
              CompileText(Loop(size, "exponential"), nullptr).executable.SerializeAsString());
  }
}

// A kernel that a native program inlines needs no entry point of its own.
TEST(ObjectCache, EveryObjectHasOneEntryPoint) {
  const auto module = *hlo::ParseText(Loop(16, "tanh"));
  const auto listed = CompileWithListings(RequestFor(*module), CompileOptions(), /*want_listings=*/true);
  ASSERT_TRUE(listed.ok()) << listed.status();
  const auto count = [&](absl::string_view text) {
    return static_cast<int64_t>(std::vector<absl::string_view>(absl::StrSplit(listed->ir, text)).size()) - 1;
  };
  EXPECT_GE(count("define internal i32 @kernel1.body("), 1);
  EXPECT_EQ(count("define i32 @"), listed->compiled_objects);
}

TEST(ObjectCache, DifferentTargetsHaveDifferentObjects) {
  MemoryObjects objects;
  const auto module = hlo::ParseText(Layers("tanh"));
  ASSERT_TRUE(module.ok());
  CompileRequest request = RequestFor(**module);
  for (const char* cpu : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    request.mutable_target()->set_triple("x86_64-pc-linux-gnu");
    request.mutable_target()->set_cpu(cpu);
    EXPECT_EQ(CompileWith(request, &objects).reused_objects, 0) << cpu;
    EXPECT_EQ(CompileWith(request, &objects).compiled_objects, 0) << cpu;
  }
}

TEST(ObjectCache, SeveralCompilationsAtOnce) {
  MemoryObjects objects;
  std::vector<std::string> expected;
  for (const char* op : {"tanh", "negate"}) {
    expected.push_back(CompileText(Layers(op), nullptr).executable.SerializeAsString());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string text = Layers(t % 2 == 0 ? "tanh" : "negate");
      EXPECT_EQ(CompileText(text, &objects).executable.SerializeAsString(), expected[t % 2]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace xlad::compiler
