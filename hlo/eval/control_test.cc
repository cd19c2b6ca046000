// Calls, loops, branches, fusions and async pairs; limits; checks of inputs; the table of opcodes.
#include "base/file_system.h"
#include "hlo/eval/test_programs.h"

namespace xlad::hlo {
namespace {

using testing::Constant;
using testing::ExpectSame;
using testing::Program;

TEST(Control, WhileRunsUntilItsConditionIsFalse) {
  const auto module = Program(R"(HloModule m
body { t = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  f = s32[] get-tuple-element(t), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  g = s32[] multiply(f, n)
  ROOT r = (s32[], s32[]) tuple(n, g) }
cond { t = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  ten = s32[] constant(10)
  ROOT c = pred[] compare(i, ten), direction=LT }
ENTRY e { zero = s32[] constant(0)
  one = s32[] constant(1)
  t = (s32[], s32[]) tuple(zero, one)
  w = (s32[], s32[]) while(t), condition=cond, body=body
  ROOT r = s32[] get-tuple-element(w), index=1 })");
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("s32[] 3628800"), "10!");
}

std::unique_ptr<Module> Forever() {
  return Program(R"(HloModule m
body { ROOT t = f32[4] parameter(0) }
cond { t = f32[4] parameter(0)
  ROOT c = pred[] constant(true) }
ENTRY e { p = f32[4] parameter(0)
  ROOT w = f32[4] while(p), condition=cond, body=body })");
}

TEST(Control, EndlessLoopsReachALimit) {
  EvaluateLimits limits;
  limits.instructions = 10'000;
  const auto result = Evaluate(*Forever(), {Constant("f32[4] {1, 2, 3, 4}")}, limits);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << result.status();
}

TEST(Control, MemoryIsBounded) {
  const auto module = Program(R"(HloModule m
ENTRY e { c = f32[] constant(1)
  b = f32[1000000,1000000] broadcast(c), dimensions={}
  r = f32[1000000000000] reshape(b)
  ROOT s = f32[1] slice(r), slice={[0:1]} })");
  const auto result = testing::Run(*module);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << result.status();
}

TEST(Control, WorkIsBounded) {
  const auto module = Program(R"(HloModule m
ENTRY e { c = f32[] constant(1)
  b = f32[4000,4000] broadcast(c), dimensions={}
  d = f32[4000,4000] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = f32[1,1] slice(d), slice={[0:1], [0:1]} })");
  EvaluateLimits limits;
  limits.element_steps = 1e10;
  const auto result = Evaluate(*module, {}, limits);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << result.status();
  EXPECT_TRUE(absl::StrContains(result.status().message(), "%d")) << result.status();
}

// Dead values are freed: a chain of a thousand arrays needs the memory of three.
TEST(Control, DeadValuesAreFreed) {
  std::string text = "HloModule m\nENTRY e { v0 = f32[1000] parameter(0)\n";
  for (int i = 0; i < 1000; ++i) {
    text +=
        "  v" + std::to_string(i + 1) + " = f32[1000] add(v" + std::to_string(i) + ", v" + std::to_string(i) + ")\n";
  }
  const auto module = Program(text + "  ROOT r = f32[1000] negate(v1000) }");
  EvaluateLimits limits;
  limits.live_bytes = 13'000;
  const Literal input(tensor::Array({tensor::ElementType::kF32, {1000}}));
  const auto result = Evaluate(*module, {input}, limits);
  EXPECT_TRUE(result.ok()) << result.status();
  limits.live_bytes = 7'000;
  EXPECT_EQ(Evaluate(*module, {input}, limits).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Control, ConditionalOutOfRangeSelectsTheLastBranch) {
  const auto module = Program(R"(HloModule m
a { x = s32[] parameter(0)
  c = s32[] constant(10)
  ROOT r = s32[] add(x, c) }
b { x = s32[] parameter(0)
  c = s32[] constant(20)
  ROOT r = s32[] add(x, c) }
c { x = s32[] parameter(0)
  c = s32[] constant(30)
  ROOT r = s32[] add(x, c) }
ENTRY e { i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT r = s32[] conditional(i, one, one, one), branch_computations={a, b, c} })");
  const std::pair<int, int> cases[] = {{0, 11}, {1, 21}, {2, 31}, {3, 31}, {-1, 31}};
  for (const auto& [index, expected] : cases) {
    const auto result = Evaluate(*module, {Constant("s32[] " + std::to_string(index))});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->array.values<int32_t>()[0], expected) << index;
  }
}

TEST(Control, FusionsCallsAndAsyncOpsRunTheirComputations) {
  const auto module = Program(R"(HloModule m
inner { x = s32[2] parameter(0)
  ROOT r = s32[2] negate(x) }
async { x = s32[2] parameter(0)
  ROOT r = s32[2] call(x), to_apply=inner }
ENTRY e { p = s32[2] parameter(0)
  f = s32[2] fusion(p), kind=kLoop, calls=inner
  s = ((s32[2]), s32[2], s32[]) async-start(f), calls=async
  u = ((s32[2]), s32[2], s32[]) async-update(s)
  d = s32[2] async-done(u)
  cs = (s32[2], s32[2], u32[]) copy-start(d)
  cd = s32[2] copy-done(cs)
  ROOT o = s32[2] opt-barrier(cd) })");
  const auto result = Evaluate(*module, {Constant("s32[2] {1, 2}")});
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("s32[2] {1, 2}"), "negated twice");
}

TEST(Control, AsyncUpdateAddsArguments) {
  const auto module = Program(*RealFileSystem().Read("hlo/testdata/async_update_arguments.hlo"));
  const auto result = Evaluate(*module, {Constant("s32[2] {3, 5}")});
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(result->tuple[0], Constant("s32[2] {6, 20}"), "bound one by one");
  ExpectSame(result->tuple[1], Constant("s32[2] {-3, -15}"), "only async-done returns the result");
  ExpectSame(result->tuple[2], Constant("s32[2] {9, 35}"), "the state of an async op is carried by a loop");
}

TEST(Control, ElidedConstantsAreCounted) {
  const auto module = Program("ENTRY e { ROOT c = (f32[1000000,1000], f32[2]) constant({...}) }");
  EvaluateLimits limits;
  limits.live_bytes = 1 << 20;
  const auto result = Evaluate(*module, {}, limits);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << result.status();
}

TEST(Control, AsyncStatesOfOtherComputationsAreErrors) {
  const auto module = Program(R"(HloModule m
minus { a = s32[2] parameter(0)
  b = s32[2] parameter(1)
  ROOT c = s32[2] subtract(a, b) }
ends { p = ((s32[2]), (), s32[]) parameter(0)
  ROOT d = s32[2] async-done(p) }
ENTRY e { p = s32[2] parameter(0)
  s = ((s32[2]), (), s32[]) async-start(p), calls=minus
  u = ((s32[2]), s32[2], (s32[], s32[3])) async-update(s)
  r = s32[2] get-tuple-element(u), index=1
  c = s32[3] get-tuple-element(u#2), index=1
  d = s32[2] call(s), to_apply=ends
  ROOT t = (s32[2], s32[3], s32[2]) tuple(r, c, d) })");
  const auto result = Evaluate(*module, {Constant("s32[2] {3, 5}")});
  EXPECT_TRUE(absl::StrContains(result.status().message(), "%d: async-done is not evaluated if the async op was"))
      << result.status();
}

TEST(Control, AnnotationsAreIdentities) {
  const auto module = Program(R"(HloModule m
ENTRY e { p = s32[2] parameter(0)
  a = s32[2] custom-call(p), custom_call_target="Sharding", sharding={replicated}
  g = () custom-call(a), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true
  ROOT b = s32[2] custom-call(a), custom_call_target="xla.sdy.FuncResultSharding" })");
  const auto result = Evaluate(*module, {Constant("s32[2] {1, 2}")});
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("s32[2] {1, 2}"), "annotations");
}

TEST(Control, UnknownCustomCallsListTheKnownOnes) {
  const auto module = Program(R"(HloModule m
ENTRY e { p = s32[2] parameter(0)
  ROOT b = s32[2] custom-call(p), custom_call_target="my_kernel" })");
  const auto result = Evaluate(*module, {Constant("s32[2] {1, 2}")});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(absl::StrContains(result.status().message(), "%b")) << result.status();
  EXPECT_TRUE(absl::StrContains(result.status().message(), "my_kernel")) << result.status();
  EXPECT_TRUE(absl::StrContains(result.status().message(), "xla.sdy.FuncResultSharding")) << result.status();
}

TEST(Inputs, AreChecked) {
  const auto module = Forever();
  EXPECT_EQ(Evaluate(*module, {}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto wrong = Evaluate(*module, {Constant("f32[3] {1, 2, 3}")});
  EXPECT_EQ(wrong.status().message(), "input 0 (p): found f32[3], expected f32[4]");
  EXPECT_EQ(Evaluate({module.get()}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Evaluate(std::vector<const Module*>(), {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Inputs, InvalidEncodingsAreNormalized) {
  const auto module = Program(R"(HloModule m
ENTRY e { p = pred[2] parameter(0)
  q = s4[2] parameter(1)
  i = s32[2] convert(p)
  j = s32[2] convert(q)
  ROOT t = (s32[2], s32[2]) tuple(i, j) })");
  const Literal preds(tensor::Array({tensor::ElementType::kPred, {2}}, {std::byte{7}, std::byte{0}}));
  const Literal fours(tensor::Array({tensor::ElementType::kS4, {2}}, {std::byte{15}, std::byte{0x73}}));
  const auto result = Evaluate(*module, {preds, fours});
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(result->tuple[0], Constant("s32[2] {1, 0}"), "pred");
  ExpectSame(result->tuple[1], Constant("s32[2] {-1, 3}"), "s4");
}

TEST(Table, EveryOpcodeIsEvaluatedOrHasAReason) {
  int without = 0;
  for (int i = 0; i < OpcodeCount(); ++i) {
    const auto opcode = static_cast<Opcode>(i);
    EXPECT_EQ(HasEvaluator(opcode), WhyNoEvaluator(opcode).empty()) << ToString(opcode);
    EXPECT_NE(WhyNoEvaluator(opcode), "the evaluator has no function for it") << ToString(opcode);
    if (!HasEvaluator(opcode)) ++without;
  }
  EXPECT_EQ(without, 5);  // infeed, outfeed, rng, rng-get-and-update-state, shuffle.
}

TEST(Table, OtherOpcodesReturnTheReason) {
  const auto module = Program(R"(HloModule m
ENTRY e { t = token[] after-all()
  i = (f32[2], token[]) infeed(t)
  ROOT x = f32[2] get-tuple-element(i), index=0 })");
  const auto result = testing::Run(*module);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(absl::StrContains(result.status().message(), "infeed is not evaluated: ")) << result.status();
}

}  // namespace
}  // namespace xlad::hlo
