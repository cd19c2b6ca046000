// Tensor parallelism as Megatron-LM has it: one all-reduce for attention and one for the MLP in each direction, nothing
// gathered, nothing replicated.
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_replace.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "sharding/explain/explain.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

// A block of 2 sequences of 6, width 8, 4 heads of 2, 16 hidden; its value and the gradients of its four weights and of
// its input, for a gradient dy of its output (the activation functions stand for their own derivatives).
constexpr const char* kBlock = R"(HloModule m, frontend_attributes={xla.sdy.meshes="{mesh = #sdy.mesh<[$mesh]>}"}
ENTRY main {
  x = f32[4,6,8] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [$batch, {}, {}]>"}
  wq = f32[8,4,2] parameter(1), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {\"tp\"}, {}]>"}
  wo = f32[4,2,8] parameter(2), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"tp\"}, {}, {}]>"}
  w1 = f32[8,16] parameter(3), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {\"tp\"}]>"}
  w2 = f32[16,8] parameter(4), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"tp\"}, {}]>"}
  dy = f32[4,6,8] parameter(5), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [$batch, {}, {}]>"}
  n1 = f32[4,6,8] sine(x)
  q = f32[4,6,4,2] dot(n1, wq), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  s = f32[4,4,6,6] dot(q, q), lhs_batch_dims={0,2}, rhs_batch_dims={0,2},
      lhs_contracting_dims={3}, rhs_contracting_dims={3}
  p = f32[4,4,6,6] tanh(s)
  a = f32[4,4,6,2] dot(p, q), lhs_batch_dims={0,1}, rhs_batch_dims={0,2},
      lhs_contracting_dims={3}, rhs_contracting_dims={1}
  o = f32[4,6,8] dot(a, wo), lhs_contracting_dims={1,3}, rhs_contracting_dims={0,1}
  x1 = f32[4,6,8] add(x, o)
  n2 = f32[4,6,8] sine(x1)
  h = f32[4,6,16] dot(n2, w1), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  g = f32[4,6,16] tanh(h)
  m = f32[4,6,8] dot(g, w2), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  y = f32[4,6,8] add(x1, m)
  dw2 = f32[16,8] dot(g, dy), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}
  dg = f32[4,6,16] dot(dy, w2), lhs_contracting_dims={2}, rhs_contracting_dims={1}
  dh = f32[4,6,16] multiply(dg, g)
  dw1 = f32[8,16] dot(n2, dh), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}
  dn2 = f32[4,6,8] dot(dh, w1), lhs_contracting_dims={2}, rhs_contracting_dims={1}
  dx1m = f32[4,6,8] multiply(dn2, n2)
  dx1 = f32[4,6,8] add(dy, dx1m)
  dwo = f32[4,2,8] dot(a, dx1), lhs_contracting_dims={0,2}, rhs_contracting_dims={0,1}
  da = f32[4,6,4,2] dot(dx1, wo), lhs_contracting_dims={2}, rhs_contracting_dims={2}
  dq = f32[4,6,4,2] multiply(da, q)
  dwq = f32[8,4,2] dot(n1, dq), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}
  dn1 = f32[4,6,8] dot(dq, wq), lhs_contracting_dims={2,3}, rhs_contracting_dims={1,2}
  dxa = f32[4,6,8] multiply(dn1, n1)
  dx = f32[4,6,8] add(dx1, dxa)
  ROOT r = (f32[4,6,8], f32[4,6,8], f32[8,4,2], f32[4,2,8], f32[8,16], f32[16,8]) tuple(y, dx, dwq, dwo, dw1, dw2)
})";

struct Case {
  const char* mesh;
  const char* batch;
  int tp, dp;
};

TEST(Megatron, OneAllReduceForAttentionAndOneForTheMlpInEachDirection) {
  for (const Case& c : {Case{R"(\"tp\"=2)", "{}", 2, 1}, Case{R"(\"tp\"=4)", "{}", 4, 1},
                        Case{R"(\"dp\"=2, \"tp\"=2)", R"({\"dp\"})", 2, 2},
                        Case{R"(\"tp\"=2, \"dp\"=4)", R"({\"dp\"})", 2, 4}}) {
    SCOPED_TRACE(c.mesh);
    std::unique_ptr<hlo::Module> module =
        *hlo::ParseText(absl::StrReplaceAll(kBlock, {{"$mesh", c.mesh}, {"$batch", c.batch}}));
    const std::vector<hlo::Literal> inputs = SampleInputs(*module);
    const hlo::Literal whole = *hlo::Evaluate(*module, inputs);
    absl::StatusOr<PipelineResult> result = RunPipeline(std::move(module), {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->partitioned.warnings.empty()) << result->partitioned.warnings[0];
    std::map<std::string, int> over;
    const Explanation explanation = *Explain(result->partitioned);
    for (const ExplainedCollective& collective : explanation.collectives) {
      EXPECT_EQ(collective.kind, "all-reduce") << collective.op;
      for (const std::string& axis : collective.axes) ++over[axis];
    }
    EXPECT_EQ(over["tp"], 4);                   // o, m, dn2, dn1.
    EXPECT_EQ(over["dp"], c.dp == 1 ? 0 : 4);   // Each weight's gradient once.
    absl::StatusOr<hlo::Literal> joined = EvaluatePartitioned(result->partitioned, inputs);
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_TRUE(CompareValues(*joined, whole, 1e-4).ok()) << CompareValues(*joined, whole, 1e-4);
  }
}

}  // namespace
}  // namespace xlad::sharding
