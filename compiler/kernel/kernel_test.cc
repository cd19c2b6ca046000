// Kernels and kernel schedules: text forms, verification, and the interpreter against the evaluator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/random.h"
#include "compiler/kernel/build_kernel.h"
#include "compiler/kernel/gpu_target.h"
#include "compiler/kernel/interpret.h"
#include "compiler/testing/candidates.h"
#include "compiler/testing/random_inputs.h"
#include "compiler/testing/random_rows.h"
#include "compiler/testing/random_schedule.h"
#include "hlo/analysis/leaves.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

using tensor::Array;

constexpr char kReducers[] = R"(
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
)";

// Returns a program whose entry is a fusion of `body` on the entry's parameters.
std::string Fused(const std::string& body, const std::string& parameters, const std::string& result,
                  const std::string& names) {
  return absl::StrCat("HloModule m\n", kReducers, "fused {\n", body, "}\nENTRY e {\n", parameters, "ROOT f = ", result,
                      " fusion(", names, "), kind=kInput, calls=fused\n}\n");
}

std::string Softmax() {
  return Fused(R"(
  x = f32[6,100] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[6] reduce(x, low), dimensions={1}, to_apply=max
  mm = f32[6,100] broadcast(m), dimensions={0}
  d = f32[6,100] subtract(x, mm)
  e = f32[6,100] exponential(d)
  s = f32[6] reduce(e, zero), dimensions={1}, to_apply=add
  ss = f32[6,100] broadcast(s), dimensions={0}
  ROOT y = f32[6,100] divide(e, ss)
)",
               "x = f32[6,100] parameter(0)\n", "f32[6,100]", "x");
}

std::string LayerNorm() {
  return Fused(R"(
  x = f32[2,3,100] parameter(0)
  g = f32[100] parameter(1)
  zero = f32[] constant(0)
  n = f32[] constant(0.01)
  sum = f32[2,3] reduce(x, zero), dimensions={2}, to_apply=add
  nn = f32[2,3] broadcast(n), dimensions={}
  mean = f32[2,3] multiply(sum, nn)
  means = f32[2,3,100] broadcast(mean), dimensions={0,1}
  d = f32[2,3,100] subtract(x, means)
  square = f32[2,3,100] multiply(d, d)
  squares = f32[2,3] reduce(square, zero), dimensions={2}, to_apply=add
  variance = f32[2,3] multiply(squares, nn)
  r = f32[2,3] rsqrt(variance)
  rr = f32[2,3,100] broadcast(r), dimensions={0,1}
  gg = f32[2,3,100] broadcast(g), dimensions={2}
  dr = f32[2,3,100] multiply(d, rr)
  ROOT y = f32[2,3,100] multiply(dr, gg)
)",
               "x = f32[2,3,100] parameter(0)\ng = f32[100] parameter(1)\n", "f32[2,3,100]", "x, g");
}

std::string Norms() {
  return Fused(R"(
  x = f32[96,8] parameter(0)
  zero = f32[] constant(0)
  square = f32[96,8] multiply(x, x)
  s = f32[96] reduce(square, zero), dimensions={1}, to_apply=add
  ROOT y = f32[96] sqrt(s)
)",
               "x = f32[96,8] parameter(0)\n", "f32[96]", "x");
}

std::string Distances() {
  return Fused(R"(
  x = f32[20,8] parameter(0)
  z = f32[32,8] parameter(1)
  zero = f32[] constant(0)
  xx = f32[20,32,8] broadcast(x), dimensions={0,2}
  zz = f32[20,32,8] broadcast(z), dimensions={1,2}
  d = f32[20,32,8] subtract(xx, zz)
  square = f32[20,32,8] multiply(d, d)
  s = f32[20,32] reduce(square, zero), dimensions={2}, to_apply=add
  ROOT y = f32[20,32] sqrt(s)
)",
               "x = f32[20,8] parameter(0)\nz = f32[32,8] parameter(1)\n", "f32[20,32]", "x, z");
}

std::unique_ptr<Module> Parsed(const std::string& text) {
  auto module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  return *std::move(module);
}

Kernel KernelOf(const Module& module) {
  std::optional<Kernel> kernel = BuildKernel(*module.entry()->root());
  EXPECT_TRUE(kernel.has_value()) << hlo::PrintText(module);
  const absl::Status verified = VerifyKernel(*kernel);
  EXPECT_TRUE(verified.ok()) << verified << KernelText(*kernel);
  return *std::move(kernel);
}

std::vector<Array> Evaluated(const Module& module, const std::vector<Array>& inputs) {
  const auto result = hlo::Evaluate(module, std::vector<hlo::Literal>(inputs.begin(), inputs.end()));
  EXPECT_TRUE(result.ok()) << result.status();
  std::vector<Array> arrays;
  for (const Array* array : hlo::ArrayLeaves(*result)) arrays.push_back(*array);
  return arrays;
}

bool SameBytes(const Array& a, const Array& b) {
  return std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
}

int64_t Count(const char* variable, int64_t usual) {
  const char* text = std::getenv(variable);
  int64_t count = 0;
  return text != nullptr && absl::SimpleAtoi(text, &count) ? count : usual;
}

TEST(Kernel, RandomSchedulesHaveTheResultsOfTheEvaluator) {
  const int64_t count = Count("XLAD_RANDOM_KERNELS", 60);
  int64_t shared = 0, staged = 0, bound = 0, split = 0, vectorized = 0, unrolled = 0;
  for (int64_t seed = 1; seed <= count && !testing::Test::HasFailure(); ++seed) {
    const auto random = SeededRandom(static_cast<uint64_t>(seed));
    const std::string program = RandomRowProgram(static_cast<uint64_t>(seed));
    const auto module = Parsed(program);
    const Kernel kernel = KernelOf(*module);
    std::vector<Array> inputs;
    for (const Instruction* parameter : module->entry()->parameters()) {
      inputs.push_back(RandomIntegers(parameter->shape().array(), random.get()));
    }
    const std::vector<Array> expected = Evaluated(*module, inputs);
    for (int i = 0; i < 2; ++i) {
      auto scheduled =
          i == 0 ? ApplySchedule(kernel, DefaultSchedule(kernel, 3)) : RandomScheduled(kernel, random.get());
      ASSERT_TRUE(scheduled.ok()) << scheduled.status();
      const auto run = InterpretKernel(*scheduled, inputs);
      ASSERT_TRUE(run.ok()) << run.status();
      ASSERT_EQ(run->outputs.size(), expected.size());
      for (size_t o = 0; o < expected.size(); ++o) {
        EXPECT_TRUE(SameBytes(run->outputs[o], expected[o]))
            << "seed " << seed << ", output " << o << "\n"
            << program << KernelText(kernel) << ScheduleText(scheduled->schedule);
      }
      if (i == 0) continue;
      shared += !scheduled->schedule.at.empty();
      staged += !scheduled->schedule.stage.empty();
      bound += !scheduled->schedule.bind.empty();
      split += !scheduled->schedule.splits.empty();
      vectorized += !scheduled->schedule.vectorize.empty();
      unrolled += !scheduled->schedule.unroll.empty();
    }
  }
  // The random schedules must include some with each of the six primitives.
  EXPECT_GT(shared, count / 4);
  EXPECT_GT(staged, count / 50);
  EXPECT_GT(bound, 0);
  EXPECT_GT(split, 0);
  EXPECT_GT(vectorized, 0);
  EXPECT_GT(unrolled, 0);
}

TEST(Kernel, SchedulesDoNotChangeBits) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto random = SeededRandom(seed);
    const auto module = Parsed(seed % 2 == 0 ? Softmax() : LayerNorm());
    const Kernel kernel = KernelOf(*module);
    const std::vector<Array> inputs = RandomInputs(*module, random.get());
    const auto usual = ApplySchedule(kernel, DefaultSchedule(kernel, 1));
    const auto other = RandomScheduled(kernel, random.get());
    ASSERT_TRUE(usual.ok() && other.ok());
    const auto a = InterpretKernel(*usual, inputs), b = InterpretKernel(*other, inputs);
    ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
    EXPECT_TRUE(SameBytes(a->outputs[0], b->outputs[0])) << ScheduleText(other->schedule);
  }
}

TEST(Kernel, CandidatesAreDifferentAndDoNotChangeBits) {
  int64_t candidates = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const auto random = SeededRandom(seed);
    const auto module = Parsed(seed == 1 ? Softmax() : seed == 2 ? LayerNorm() : RandomRowProgram(seed));
    const Kernel kernel = KernelOf(*module);
    const std::vector<Array> inputs = RandomInputs(*module, random.get());
    const auto usual = ApplySchedule(kernel, DefaultSchedule(kernel, 3));
    ASSERT_TRUE(usual.ok()) << usual.status();
    const auto expected = InterpretKernel(*usual, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    candidates += CheckCandidates(kernel, [&](const ScheduledKernel& scheduled) {
      const auto run = InterpretKernel(scheduled, inputs);
      ASSERT_TRUE(run.ok()) << run.status();
      for (size_t o = 0; o < expected->outputs.size(); ++o) {
        EXPECT_TRUE(SameBytes(run->outputs[o], expected->outputs[o])) << ScheduleText(scheduled.schedule);
      }
    });
  }
  EXPECT_GT(candidates, 40) << "the candidates must differ from the usual schedules";
}

TEST(Kernel, SoftmaxAndLayerNormReadAndWriteMemoryOnce) {
  const auto random = SeededRandom(1);
  for (const std::string& program : {Softmax(), LayerNorm()}) {
    const auto module = Parsed(program);
    const Kernel kernel = KernelOf(*module);
    const auto scheduled = ApplySchedule(kernel, DefaultSchedule(kernel, 3));
    ASSERT_TRUE(scheduled.ok()) << scheduled.status();
    const auto run = InterpretKernel(*scheduled, RandomInputs(*module, random.get()));
    ASSERT_TRUE(run.ok()) << run.status();
    // The bytes read are x once, and the scale of the norm once for each of the 6 rows.
    const int64_t scales = kernel.arrays.size() > 1 && kernel.arrays[1].name == "x1" ? 6 * 100 * 4 : 0;
    EXPECT_EQ(run->bytes_read, 600 * 4 + scales);
    EXPECT_EQ(run->bytes_written, 600 * 4);
  }
}

TEST(Kernel, TextRoundTrips) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const auto module = Parsed(RandomRowProgram(seed));
    const Kernel kernel = KernelOf(*module);
    const std::string text = KernelText(kernel);
    const auto parsed = ParseKernel(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
    EXPECT_EQ(KernelText(*parsed), text);
    EXPECT_EQ(KernelHash(*parsed), KernelHash(kernel));
    Kernel renamed = kernel;
    renamed.name = "other";
    renamed.arrays[0].name = "input";
    EXPECT_EQ(KernelHash(renamed), KernelHash(kernel));
    renamed.arrays[0].elements += 1;
    EXPECT_NE(KernelHash(renamed), KernelHash(kernel));
    const auto random = SeededRandom(seed);
    const KernelSchedule schedule = RandomSchedule(kernel, random.get());
    const auto again = ParseSchedule(ScheduleText(schedule));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, schedule);
    EXPECT_EQ(ScheduleHash(*again), ScheduleHash(schedule));
  }
}

TEST(Kernel, TextIsReadable) {
  const auto module = Parsed(Softmax());
  const Kernel kernel = KernelOf(*module);
  const std::string text = KernelText(kernel);
  for (const char* line : {"dim r 6\n", "dim c 100\n", "input x0 f32 600\n", "output y0 f32 600\n",
                           "reduce s0 over r along c lanes 64 writes t", "read x0 at 100*r+c\n",
                           "map s3 over r c writes y0 at 100*r+c\n"}) {
    EXPECT_TRUE(absl::StrContains(text, line)) << line << "\n" << text;
  }
  EXPECT_TRUE(ParseKernel(absl::StrReplaceAll(text, {{"dim c", " \ndim c"}})).ok()) << "blank lines are skipped";
  EXPECT_TRUE(ParseSchedule("order r c\n \n").ok());
  EXPECT_EQ(ScheduleText(DefaultSchedule(kernel, 3)),
            "split c 64\norder r c.o c.i\nbind r 2\nat s0 r\nat s1 c.i\nat s2 r\nstage t0 r\nstage t1 r\nstage t2 r\n"
            "vectorize c.i\n");
}

// Otherwise, square roots would be computed one at a time, each after the sum of its row.
TEST(Kernel, ShortRowsAreComputedInBlocks) {
  const auto random = SeededRandom(1);
  for (const auto& [program, schedule] : std::vector<std::pair<std::string, std::string>>{
           {Norms(), "split r 16\nsplit c 8\norder r.o r.i c.o c.i\nbind r.o 2\nat s0 r.o\nstage t0 r.o\n"},
           {Distances(), "split c 8\norder r0 r1 c.o c.i\nbind r0 7\nat s0 r0\nstage t0 r0\n"}}) {
    const auto module = Parsed(program);
    const Kernel kernel = KernelOf(*module);
    EXPECT_EQ(ScheduleText(DefaultSchedule(kernel, 3)), schedule + "vectorize c.i\n");
    // On a GPU, each row is a tile.
    EXPECT_FALSE(absl::StrContains(ScheduleText(DefaultSchedule(kernel, kOneRowTiles)), "r.o"));
    std::vector<Array> inputs;
    for (const Instruction* parameter : module->entry()->parameters()) {
      inputs.push_back(RandomIntegers(parameter->shape().array(), random.get()));
    }
    const auto scheduled = ApplySchedule(kernel, DefaultSchedule(kernel, 3));
    ASSERT_TRUE(scheduled.ok()) << scheduled.status();
    EXPECT_EQ(scheduled->tiles, 3);
    const auto run = InterpretKernel(*scheduled, inputs);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_TRUE(SameBytes(run->outputs[0], Evaluated(*module, inputs)[0])) << program;
  }
}

// Parses `text` with one replacement. The error must contain `expected`.
void ExpectRefused(const std::string& text, const std::string& from, const std::string& to, const std::string& words) {
  ASSERT_TRUE(absl::StrContains(text, from)) << from << "\n" << text;
  const auto parsed = ParseKernel(absl::StrReplaceAll(text, {{from, to}}));
  ASSERT_FALSE(parsed.ok()) << from << " to " << to;
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(parsed.status().message(), words)) << parsed.status();
}

TEST(Kernel, RefusesWrongKernels) {
  const auto module = Parsed(Softmax());
  const std::string text = KernelText(KernelOf(*module));
  ExpectRefused(text, "dim r 6", "dim r six", "dim NAME SIZE");
  ExpectRefused(text, "dim r 6", "dim r 7", "outside of its 600 elements");
  ExpectRefused(text, "input x0 f32", "input x0 f33", "an element type");
  ExpectRefused(text, "input x0 f32 600", "input x0 s32 600", "expected the type of what it reads");
  ExpectRefused(text, "lanes 64", "lanes 63", "a power of two");
  ExpectRefused(text, "writes y0 at 100*r+c", "writes y0 at c", "different positions");
  ExpectRefused(text, "writes y0 at 100*r+c", "writes x0 at 100*r+c", "an array that nothing else writes");
  ExpectRefused(text, "read x0 at 100*r+c", "read x9 at 100*r+c", "the name of an array");
  ExpectRefused(text, "map s3 over r c", "map s3 over r", "a dimension that it does not have");
  ExpectRefused(text, "end\n", "", "expected");
}

TEST(Kernel, RefusesPositionsBeyondInt64) {
  const auto module = Parsed(Softmax());
  const std::string text = KernelText(KernelOf(*module));
  for (const std::string most : {"9223372036854775807", "-9223372036854775808"}) {
    const std::string one = most[0] == '-' ? "-1" : "1";
    const auto refused = [&](const std::string& position, const std::string& words) {
      ExpectRefused(text, "read x0 at 100*r+c", "read x0 at " + position, words);
    };
    refused(most + "*r+" + one + "*r", "read ARRAY at POSITION");  // The sum is not an int64.
    refused(most + "+" + one, "read ARRAY at POSITION");
    refused(most + "*r", "positions beyond 2^62");
    refused(most, "positions beyond 2^62");
    refused("4611686018427387904*c+r", "positions beyond 2^62");
    refused("4611686018427387904+r", "positions beyond 2^62");
    refused("-46116860184273879*c+-4611686018427387904*r", "positions beyond 2^62");
    refused("4611686018427387904", "outside of its 600 elements");
    ExpectRefused(text, "writes y0 at 100*r+c", "writes y0 at " + most + "*r+c", "positions beyond 2^62");
  }
}

TEST(Kernel, RefusesSchedulesThatWouldChangeResults) {
  const auto module = Parsed(Softmax());
  const Kernel kernel = KernelOf(*module);
  const auto refused = [&](const std::string& text, const std::string& words) {
    const auto schedule = ParseSchedule(text);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const auto scheduled = ApplySchedule(kernel, *schedule);
    ASSERT_FALSE(scheduled.ok()) << text;
    EXPECT_TRUE(absl::StrContains(scheduled.status().message(), words)) << scheduled.status();
  };
  refused("order c r\n", "innermost");
  refused("order r\n", "loop c is missing");
  refused("order r c\nat s0 c\n", "before it is complete");
  refused("order r c.i c.o\nsplit c 8\n", "the outer loop of a split before");
  refused("order r c\nsplit d 8\n", "no such dimension");
  refused("order r c\nbind r 2\n", "does not share these loops");
  refused("order r c\nat s0 r\nat s1 r\nat s2 r\nbind c 2\n", "the outermost loops");
  refused("split r 4\norder r.o r.i c\nat s0 r.o\nat s1 r.o\nat s2 r.o\nbind r.o 1\n", "without a remainder");
  refused("order r c\nstage t0 r\n", "outside of this loop");
  refused("order r c\nstage y0 r\n", "a temporary");
  refused("order r c\nat s0 r\nat s1 r\nat s2 r\nstage t0 r\nstage t0 r\n", "t0 r: the temporary is staged already");
  refused("order r c\nat s3 r\n", "before the last");
  EXPECT_TRUE(absl::StrContains(ParseSchedule("tile r 5\n").status().message(), "line 1"));
}

TEST(Kernel, InterpreterRefusesWrongInputs) {
  const auto module = Parsed(Softmax());
  const auto scheduled = ApplySchedule(KernelOf(*module), *ParseSchedule("order r c\n"));
  ASSERT_TRUE(scheduled.ok()) << scheduled.status();
  const Array input(tensor::Shape{ElementType::kF32, {6, 100}});
  EXPECT_TRUE(InterpretKernel(*scheduled, {input}).ok());
  const auto refused = [&](const std::vector<Array>& inputs, const std::string& message) {
    EXPECT_EQ(InterpretKernel(*scheduled, inputs).status(),
              absl::InvalidArgumentError(absl::StrCat("kernel f: found ", message)));
  };
  refused({}, "no input for x0, expected f32 with 600 elements");
  refused({Array(tensor::Shape{ElementType::kF64, {6, 100}})}, "f64[6,100] for x0, expected f32 with 600 elements");
  refused({Array(tensor::Shape{ElementType::kF32, {6}})}, "f32[6] for x0, expected f32 with 600 elements");
  refused({input, input}, "2 inputs, expected 1");
}

}  // namespace
}  // namespace xlad::compiler
