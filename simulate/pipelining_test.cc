// Loops whose iterations overlap as far as units and carried values allow.
#include "simulate/pipelining.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/read/read.h"
#include "simulate/simulate.h"

namespace xlad::simulate {
namespace {

// A loop of `trips` iterations. `body` computes `next`, the next value of the carried array s, from s, w and x. The
// array w is the same in all iterations, and x is the slice of xs that belongs to this iteration.
std::string Loop(int64_t trips, const std::string& body) {
  return absl::StrCat(R"(HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["dp"=1]>}}
body {
  p = (s32[], f32[64,2048,2048], f32[2048,2048], f32[2048,2048]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  xs = f32[64,2048,2048] get-tuple-element(p), index=1
  s = f32[2048,2048] get-tuple-element(p), index=2
  w = f32[2048,2048] get-tuple-element(p), index=3
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  part = f32[1,2048,2048] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={1,2048,2048}
  x = f32[2048,2048] reshape(part)
)",
                      body, R"(
  ROOT t = (s32[], f32[64,2048,2048], f32[2048,2048], f32[2048,2048]) tuple(j, xs, next, w)
}
cond {
  p = (s32[], f32[64,2048,2048], f32[2048,2048], f32[2048,2048]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant()",
                      trips, R"()
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  xs = f32[64,2048,2048] parameter(0)
  s = f32[2048,2048] parameter(1)
  w = f32[2048,2048] parameter(2)
  zero = s32[] constant(0)
  t = (s32[], f32[64,2048,2048], f32[2048,2048], f32[2048,2048]) tuple(zero, xs, s, w)
  loop = (s32[], f32[64,2048,2048], f32[2048,2048], f32[2048,2048]) while(t), condition=cond, body=body
  ROOT y = f32[2048,2048] get-tuple-element(loop), index=2
})");
}

constexpr char kWork[] = R"(
  a = f32[2048,2048] tanh(ARGUMENT)
  b = f32[2048,2048] exponential(a)
  c = f32[2048,2048] tanh(b)
  d = f32[2048,2048] exponential(c)
  e = f32[2048,2048] tanh(d)
  f = f32[2048,2048] exponential(e)
  g = f32[2048,2048] tanh(f)
  h = f32[2048,2048] dot(g, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)";

StepTime TimeOf(const std::string& text) {
  auto module = hlo::ReadModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  const auto program = PrepareProgram(*std::move(module), {});
  EXPECT_TRUE(program.ok()) << program.status();
  const auto prediction = Predict(*program, *ParseSlice("v5e-1x1", std::nullopt), "");
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return prediction->step;
}

std::string WithArgument(std::string text, const std::string& argument) {
  const std::string word = "ARGUMENT";
  text.replace(text.find(word), word.size(), argument);
  return text;
}

// s = s + f(x): only the addition depends on the previous iteration.
const std::string kSum = absl::StrCat(WithArgument(kWork, "x"), "  next = f32[2048,2048] add(s, h)\n");
// s = f(s) + x: all instructions depend on the previous iteration.
const std::string kChain = absl::StrCat(WithArgument(kWork, "s"), "  next = f32[2048,2048] add(x, h)\n");

TEST(Pipelining, IndependentIterationsTakeAsLongAsTheBusiestUnit) {
  const StepTime one = TimeOf(Loop(1, kSum)), sum = TimeOf(Loop(64, kSum)), chain = TimeOf(Loop(64, kChain));
  const double busiest = std::max({sum.mxu_us, sum.vpu_us, sum.hbm_us});
  EXPECT_GE(sum.us, busiest);
  EXPECT_LT(sum.us, busiest + 2 * one.us);
  EXPECT_GE(chain.us, 0.95 * (chain.mxu_us + chain.vpu_us));
  EXPECT_LT(sum.us, 0.8 * chain.us);
}

TEST(Pipelining, TimesGrowWithTheTrips) {
  for (const std::string& body : {kSum, kChain}) {
    const double few = TimeOf(Loop(16, body)).us, many = TimeOf(Loop(32, body)).us, most = TimeOf(Loop(64, body)).us;
    EXPECT_NEAR(most - many, 2 * (many - few), 0.01 * most);
  }
}

TEST(Pipelining, RecurrencesAreTheLongestPathsBetweenCarriedValues) {
  const auto simple = hlo::ReadModule(R"(HloModule m
ENTRY main {
  p = (f32[8], f32[8], f32[8]) parameter(0)
  a = f32[8] get-tuple-element(p), index=0
  b = f32[8] get-tuple-element(p), index=1
  c = f32[8] get-tuple-element(p), index=2
  x = f32[8] exponential(b)
  y = f32[8] tanh(a)
  z = f32[8] add(c, x)
  ROOT t = (f32[8], f32[8], f32[8]) tuple(x, y, z)
})");
  ASSERT_TRUE(simple.ok()) << simple.status();
  InstructionTimes us;
  for (const auto& instruction : (*simple)->entry()->instructions()) {
    if (instruction->name() == "x") us[instruction.get()] = 5;
    if (instruction->name() == "y") us[instruction.get()] = 3;
    if (instruction->name() == "z") us[instruction.get()] = 4;
  }
  // a and b depend on each other over two iterations. c depends on itself and on b, but no other value depends on c.
  EXPECT_TRUE(IsPipelined(*(*simple)->entry()));
  EXPECT_EQ(RecurrenceUs(*(*simple)->entry(), us), 5);
}

}  // namespace
}  // namespace xlad::simulate
