#include "compiler/buffers/overlap_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "compiler/compile.h"
#include "compiler/testing/random_inputs.h"
#include "compiler/testing/run_steps.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPair[] = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add";

// A gradient is reduced while another product is computed. `users` are lines that use %r or %g.
std::string Program(int64_t n, const std::string& users) {
  return absl::StrCat(R"(HloModule m, num_partitions=2
%add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }
ENTRY e {
  x = f32[)", n, ",", n, R"(] parameter(0)
  g = f32[)", n, ",", n, R"(] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  r = f32[)", n, ",", n, R"(] all-reduce(g), )", kPair, R"(
  y = f32[)", n, ",", n, R"(] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)", users, "}\n");
}

std::string Sum(int64_t n) { return absl::StrCat("  ROOT s = f32[", n, ",", n, "] add(r, y)\n"); }

absl::StatusOr<Compilation> CompileText(const std::string& text, const CompilePolicy& policy = {}) {
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, hlo::ParseText(text));
  CompileRequest request;
  *request.mutable_policy() = policy;
  return CompileToSteps(std::move(module), request, {.verify = true});
}

std::string Ops(const std::string& text, const CompilePolicy& policy = {}) {
  const auto compiled = CompileText(text, policy);
  return compiled.ok() ? ToString(compiled->program) : std::string(compiled.status().message());
}

TEST(OverlapCollectives, ComputesBetweenStartAndEnd) {
  const auto compiled = CompileText(Program(256, Sum(256)));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::vector<std::string> kinds;
  for (const Step& step : compiled->steps.steps) {
    kinds.push_back(step.has_collective() ? "start" : step.has_collective_done() ? "done" : step.name());
  }
  EXPECT_THAT(kinds, testing::ElementsAre("g", "start", "y", "done", "s.1"));
  EXPECT_EQ(compiled->steps.steps[1].collective().request(), compiled->steps.steps[3].collective_done().request());
  EXPECT_NE(compiled->steps.steps[1].collective().request(), 0);
  // No other operation reads the operand, so it is reduced in place.
  const CollectiveStep& collective = compiled->steps.steps[1].collective();
  EXPECT_EQ(collective.inputs(0).offset(), collective.outputs(0).offset());
}

TEST(OverlapCollectives, SplitsOnlyIfThereIsEnoughComputation) {
  EXPECT_THAT(Ops(Program(8, Sum(8))), Not(HasSubstr("-start")));
  CompilePolicy always, never, op_by_op;
  always.set_overlap(CompilePolicy::ALWAYS);
  EXPECT_THAT(Ops(Program(8, Sum(8)), always), HasSubstr("all-reduce-start #1"));
  never.set_overlap(CompilePolicy::NEVER);
  EXPECT_THAT(Ops(Program(256, Sum(256)), never), Not(HasSubstr("-start")));
  op_by_op.set_op_by_op(true);
  EXPECT_THAT(Ops(Program(256, Sum(256)), op_by_op), Not(HasSubstr("-start")));
}

// The operand is read later, so the collective cannot run in place.
TEST(OverlapCollectives, AnOperandThatIsReadLaterKeepsItsMemory) {
  const auto compiled = CompileText(Program(256, R"(  z = f32[256,256] subtract(g, y)
  ROOT s = f32[256,256] add(r, z)
)"));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (const Step& step : compiled->steps.steps) {
    if (!step.has_collective()) continue;
    EXPECT_NE(step.collective().request(), 0);
    EXPECT_NE(step.collective().inputs(0).offset(), step.collective().outputs(0).offset());
  }
}

TEST(OverlapCollectives, LoopsKeepTheirResults) {
  const std::string text = hlo::TestText("compiler/buffers/testdata/loop_with_a_collective.hlo");
  CompilePolicy always;
  always.set_overlap(CompilePolicy::ALWAYS);
  EXPECT_THAT(Ops(text, always), HasSubstr("all-reduce-done"));
  const auto compiled = CompileText(text, always), plain = CompileText(text);
  ASSERT_TRUE(compiled.ok() && plain.ok()) << compiled.status() << plain.status();
  const auto random = SeededRandom(3);
  const std::vector<std::vector<tensor::Array>> inputs = {RandomInputs(*compiled->module, random.get()),
                                                          RandomInputs(*compiled->module, random.get())};
  const auto a = RunSteps(*compiled, inputs), b = RunSteps(*plain, inputs);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  for (int device = 0; device < 2; ++device) {
    for (int leaf = 0; leaf < 2; ++leaf) {
      const auto x = (*a)[device][leaf].bytes(), y = (*b)[device][leaf].bytes();
      EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << device << " " << leaf;
    }
  }
}

// The checker finds an operation that reads the result of a collective before the collective's end, and a collective
// without an end.
TEST(OverlapCollectives, CheckerFindsAccessesToRunningCollectives) {
  const auto compiled = CompileText(Program(256, Sum(256)));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const LinearProgram& program = compiled->program;
  ASSERT_TRUE(CheckAssignment(program, compiled->assignment).ok());
  LinearProgram early = program;  // The result is read before the end of the collective.
  for (size_t at = 0; at + 1 < early.ops.size(); ++at) {
    if (early.ops[at].kind == LinearOp::Kind::kCollectiveDone) {
      std::swap(early.ops[at], early.ops[at + 1]);
      break;
    }
  }
  EXPECT_THAT(std::string(CheckAssignment(early, compiled->assignment).message()), HasSubstr("running collective %r"));
  LinearProgram endless = program;
  std::erase_if(endless.ops, [](const LinearOp& op) { return op.kind == LinearOp::Kind::kCollectiveDone; });
  EXPECT_FALSE(CheckAssignment(endless, compiled->assignment).ok());
}

}  // namespace
}  // namespace xlad::compiler
