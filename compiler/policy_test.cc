// The policy of a compile request: op by op, checked floats, a memory limit, kernel schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_replace.h"
#include "base/random.h"
#include "compiler/compile.h"
#include "compiler/testing/random_inputs.h"
#include "compiler/testing/run_steps.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

using tensor::Array;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The program applies softmax twelve times, then a product and a logarithm.
std::string Loop() { return hlo::TestText("compiler/steps/testdata/softmax_in_a_loop.hlo"); }

absl::StatusOr<Compilation> CompileWith(const std::string& text, const CompilePolicy& policy) {
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, hlo::ParseText(text));
  CompileRequest request;
  *request.mutable_policy() = policy;
  return CompileToSteps(std::move(module), request);
}

CompilePolicy OpByOp() {
  CompilePolicy policy;
  policy.set_op_by_op(true);
  return policy;
}

std::string Refusal(const CompilePolicy& policy) {
  const auto compilation = CompileWith(Loop(), policy);
  return compilation.ok() ? "" : std::string(compilation.status().message());
}

int CountFusions(const Module& module) {
  int count = 0;
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) count += instruction->opcode() == Opcode::kFusion;
  }
  return count;
}

TEST(Policy, OpByOpDoesNotFuseAndHasTheSameResults) {
  const auto fused = CompileWith(Loop(), CompilePolicy()), single = CompileWith(Loop(), OpByOp());
  ASSERT_TRUE(fused.ok() && single.ok()) << fused.status() << single.status();
  EXPECT_GT(CountFusions(*fused->module), 0);
  EXPECT_EQ(CountFusions(*single->module), 0);
  EXPECT_TRUE(fused->steps.native_loops);
  EXPECT_FALSE(single->steps.native_loops);
  const auto random = SeededRandom(1);
  const std::vector<Array> inputs = RandomInputs(*fused->module, random.get());
  const auto a = RunSteps(*fused, {inputs}), b = RunSteps(*single, {inputs});
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  const auto bytes = a->at(0).at(0).bytes(), other = b->at(0).at(0).bytes();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), other.begin(), other.end()));
}

TEST(Policy, CheckedStepsListTheFloatsThatTheyReadAndWrite) {
  CompilePolicy policy = OpByOp();
  auto compilation = CompileWith(Loop(), policy);
  ASSERT_TRUE(compilation.ok()) << compilation.status();
  EXPECT_EQ(compilation->steps.steps.back().checked_results_size(), 0);
  policy.set_check_numerics(true);
  compilation = CompileWith(Loop(), policy);
  ASSERT_TRUE(compilation.ok()) << compilation.status();
  for (const Step& step : compilation->steps.steps) {
    if (step.source() != "train.py:31") continue;
    ASSERT_EQ(step.checked_operands_size(), 1);
    ASSERT_EQ(step.checked_results_size(), 1);
    EXPECT_EQ(step.checked_results(0).buffer().bytes(), 144);
    EXPECT_EQ(step.checked_results(0).element_type(), static_cast<int>(ElementType::kF32));
    return;
  }
  FAIL() << "the logarithm is not a step";
}

TEST(Policy, ASelectOfAConstantNanIsNamed) {
  CompilePolicy policy = OpByOp();
  policy.set_check_numerics(true);
  const auto compilation = CompileWith(R"(HloModule m
ENTRY e {
  p = pred[4] parameter(0)
  x = f32[4] parameter(1)
  nan = f32[] constant(nan)
  nans = f32[4] broadcast(nan), dimensions={}
  low = f32[] constant(-inf)
  lows = f32[4] broadcast(low), dimensions={}
  filled = f32[4] select(p, x, nans)
  masked = f32[4] select(p, x, lows)
  ROOT r = (f32[4], f32[4]) tuple(filled, masked)
})",
                                       policy);
  ASSERT_TRUE(compilation.ok()) << compilation.status();
  std::map<std::string, int> operands;
  for (const Step& step : compilation->steps.steps) operands[step.name()] = step.checked_operands_size();
  EXPECT_EQ(operands["filled"], 1) << "only a NaN of x would explain a NaN of the result";
  EXPECT_EQ(operands["masked"], 2) << "the infinities of a mask are intended";
}

TEST(Policy, StepsHaveFlopsAndBytes) {
  const auto compilation = CompileWith(Loop(), OpByOp());
  ASSERT_TRUE(compilation.ok()) << compilation.status();
  double of_loop = 0, of_dot = 0, dot_bytes = 0;
  for (const Step& step : compilation->steps.steps) {
    if (step.has_while_()) of_loop = step.flops();
    if (!step.has_library()) continue;
    of_dot = step.flops();
    dot_bytes = step.bytes();
  }
  // Each of the 12 iterations has an exponential, an addition and a division for each of the 600 elements.
  EXPECT_EQ(of_loop, 12 * 3 * 600);
  EXPECT_EQ(of_dot, 2 * 6 * 6 * 100);
  EXPECT_EQ(dot_bytes, 4 * (600 + 600 + 36));
}

// The root of the fusion has no source line, as if a pass had made it.
TEST(Policy, AFusionHasTheSourceOfAnInstructionInIt) {
  const auto compilation = CompileWith(R"(HloModule m
ENTRY e {
  x = f32[600] parameter(0)
  sine = f32[600] sine(x), metadata={source_file="train.py" source_line=30}
  exp = f32[600] exponential(sine), metadata={source_file="train.py" source_line=31}
  ROOT r = f32[600] negate(exp)
})",
                                       CompilePolicy());
  ASSERT_TRUE(compilation.ok()) << compilation.status();
  ASSERT_EQ(compilation->steps.steps.size(), 1u);
  EXPECT_EQ(compilation->steps.steps[0].source(), "train.py:31");
}

TEST(Policy, MemoryLimitNamesTheLargestValues) {
  CompilePolicy policy;
  policy.set_memory_limit_bytes(1);
  const auto refused = CompileWith(Loop(), policy);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("parameters 2400, results 144"), HasSubstr("expected at most 1;"),
                    HasSubstr("the largest values: x.1 (parameters, 2400 bytes), w (temporaries, 2400")));
  const auto free = CompileWith(Loop(), CompilePolicy());
  ASSERT_TRUE(free.ok());
  int64_t total = 0;
  for (const Allocation& allocation : free->assignment.allocations) total += allocation.bytes();
  policy.set_memory_limit_bytes(total);
  EXPECT_EQ(Refusal(policy), "");
  policy.set_memory_limit_bytes(total - 1);
  EXPECT_NE(Refusal(policy), "");
}

TEST(Policy, MemoryLimitNamesTheOperationAndTheLineWithTheMostTemporaries) {
  std::string text = "HloModule m\nENTRY e {\n  x = f32[64,64] parameter(0)\n";
  const char* const operands[] = {"x, x", "a, x", "b, a", "c, x"};
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&text, i == 3 ? "ROOT " : "", std::string(1, "abcd"[i]), " = f32[64,64] dot(", operands[i],
                    "), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={source_file=\"train.py\" ",
                    "source_line=", 5 + i, "}\n");
  }
  CompilePolicy policy;
  policy.set_memory_limit_bytes(1);
  const auto refused = CompileWith(text + "}\n", policy);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("the most temporaries are needed at c (train.py:7), operation 3 of 4: 49152 bytes;"),
                    HasSubstr("a (train.py:5) (temporaries, 16384 bytes), b (train.py:6) (temporaries, 16384 bytes)")));
}

// The program's own schedules, as text.
std::string OwnSchedules() {
  const auto compilation = CompileWith(Loop(), CompilePolicy());
  std::string text = "# The schedules of a loop.\n\n";
  for (const KernelRequest& request : compilation->steps.kernels) {
    if (request.kernel != nullptr) text += ScheduleEntryText(request.kernel->kernel, request.kernel->schedule) + "\n";
  }
  return text;
}

TEST(Policy, SchedulesAreReadChangedAndUsed) {
  CompilePolicy policy;
  const std::string own = OwnSchedules();
  ASSERT_THAT(own, HasSubstr("split c 64\n"));
  policy.set_kernel_schedules(own);
  EXPECT_EQ(Refusal(policy), "");
  policy.set_kernel_schedules(absl::StrReplaceAll(own, {{"split c 64", "split c 16"}}));
  const auto changed = CompileWith(Loop(), policy);
  ASSERT_TRUE(changed.ok()) << changed.status();
  int found = 0;
  for (const KernelRequest& request : changed->steps.kernels) {
    if (request.kernel == nullptr || request.kernel->schedule.splits.empty()) continue;
    ++found;
    EXPECT_EQ(request.kernel->schedule.splits[0].factor, 16);
  }
  EXPECT_EQ(found, 1);
}

TEST(Policy, SchedulesOfProductsAreReadChangedAndUsed) {
  const std::string text = R"(HloModule m
ENTRY e {
  x = f64[64,64] parameter(0)
  y = f64[64,64] parameter(1)
  ROOT z = f64[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
)";
  CompilePolicy policy;
  const auto own = CompileWith(text, policy);
  ASSERT_TRUE(own.ok()) << own.status();
  ASSERT_EQ(own->steps.kernels.size(), 1u);
  const ScheduledKernel& kernel = *own->steps.kernels[0].kernel;
  const std::string schedule = ScheduleEntryText(kernel.kernel, kernel.schedule);
  ASSERT_THAT(schedule, HasSubstr("split n 64\n"));
  policy.set_kernel_schedules(absl::StrReplaceAll(schedule, {{"split n 64", "split n 40"}}) + "atom 4 32\n");
  const auto changed = CompileWith(text, policy);
  ASSERT_TRUE(changed.ok()) << changed.status();
  const ProductBlocks& blocks = *changed->steps.kernels[0].kernel->blocks;
  EXPECT_EQ(blocks.columns, 40);
  EXPECT_EQ(blocks.atom_columns, 32);
  policy.set_kernel_schedules(schedule + "atom 4 31\n");
  EXPECT_THAT(std::string(CompileWith(text, policy).status().message()),
              AllOf(HasSubstr("schedules: line 1: kernel "), HasSubstr("atom 4 31: expected powers of two")));
}

TEST(Policy, WrongSchedulesAreRefusedWithTheirLine) {
  CompilePolicy policy;
  const std::string own = OwnSchedules();
  const auto expect = [&](const std::string& text, const std::string& place, const std::string& words) {
    policy.set_kernel_schedules(text);
    EXPECT_THAT(Refusal(policy), AllOf(HasSubstr(place), HasSubstr(words)));
  };
  expect("split c 64\n", "schedules: line 1:", "found \"split c 64\", expected kernel HASH NAME");
  expect("\nkernel 12 x\norder r\n", "schedules: line 2:", "a hash of 16 digits");
  expect("kernel 0123456789abcdef x\norder r\n",
         "schedules: line 1:", "found kernel 0123456789abcdef, expected one of the program's: ");
  expect(absl::StrReplaceAll(own, {{"split c 64", "splat c 64"}}), "schedules: line 4:", "found \"splat c 64\"");
  expect(absl::StrReplaceAll(own, {{"split c 64", "split d 64"}}), "schedules: line 3: kernel ", "no such dimension");
  expect(own + own, "schedules: line ", "again, expected each kernel once; the first is in line 3");
  expect(absl::StrReplaceAll(own, {{"split c 64", "split c 100"}, {"vectorize c.i", "unroll r\nunroll c.i"}}),
         "schedules: line 3: kernel ", "found 600 copies of a loop's body, expected at most 256");
  // Schedules that were tuned for another program or by another version are ignored.
  policy.clear_kernel_schedules();
  policy.set_tuned_schedules(absl::StrReplaceAll(own, {{"split c 64", "split d 64"}}) +
                             "kernel 0123456789abcdef x\norder r\n");
  EXPECT_EQ(Refusal(policy), "");
}

}  // namespace
}  // namespace xlad::compiler
