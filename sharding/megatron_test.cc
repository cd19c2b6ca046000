// Tensor parallelism as Megatron-LM has it: one all-reduce for attention and one for the MLP in each direction, nothing
// gathered, nothing replicated.
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_replace.h"
#include "hlo/eval/evaluate.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "sharding/explain/explain.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

struct Case {
  const char* mesh;
  const char* batch;
  int tp, dp;
};

TEST(Megatron, OneAllReduceForAttentionAndOneForTheMlpInEachDirection) {
  const std::string text = hlo::TestText("sharding/partition/testdata/megatron_block.hlo");
  for (const Case& c : {Case{R"(\"tp\"=2)", "{}", 2, 1}, Case{R"(\"tp\"=4)", "{}", 4, 1},
                        Case{R"(\"dp\"=2, \"tp\"=2)", R"({\"dp\"})", 2, 2},
                        Case{R"(\"tp\"=2, \"dp\"=4)", R"({\"dp\"})", 2, 4}}) {
    SCOPED_TRACE(c.mesh);
    std::unique_ptr<hlo::Module> module =
        *hlo::ParseText(absl::StrReplaceAll(text, {{"$mesh", c.mesh}, {"$batch", c.batch}}));
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
