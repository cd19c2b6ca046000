// Tensor parallelism as in Megatron-LM: in each direction one all-reduce for attention and one for the MLP, and no
// all-gather.
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

struct MegatronMesh {
  const char* mesh;
  const char* batch;
  int tp, dp;
};

TEST(Megatron, OneAllReduceForAttentionAndOneForTheMlpInEachDirection) {
  const std::string text = hlo::TestText("sharding/partition/testdata/megatron_block.hlo");
  for (const MegatronMesh& c : {MegatronMesh{R"(\"tp\"=2)", "{}", 2, 1}, MegatronMesh{R"(\"tp\"=4)", "{}", 4, 1},
                                MegatronMesh{R"(\"dp\"=2, \"tp\"=2)", R"({\"dp\"})", 2, 2},
                                MegatronMesh{R"(\"tp\"=2, \"dp\"=4)", R"({\"dp\"})", 2, 4}}) {
    SCOPED_TRACE(c.mesh);
    std::unique_ptr<hlo::Module> module =
        *hlo::ParseText(absl::StrReplaceAll(text, {{"$mesh", c.mesh}, {"$batch", c.batch}}));
    const std::vector<hlo::Literal> inputs = SampleInputs(*module);
    const hlo::Literal expected = *hlo::Evaluate(*module, inputs);
    absl::StatusOr<PipelineResult> result = RunPipeline(std::move(module), {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->partitioned.warnings.empty()) << result->partitioned.warnings[0];
    std::map<std::string, int> count;  // The number of collectives over each axis.
    const Explanation explanation = *Explain(result->partitioned);
    for (const ExplainedCollective& collective : explanation.collectives) {
      EXPECT_EQ(collective.kind, "all-reduce") << collective.op;
      for (const std::string& axis : collective.axes) ++count[axis];
    }
    EXPECT_EQ(count["tp"], 4);                  // The all-reduces of o, m, dn2 and dn1.
    EXPECT_EQ(count["dp"], c.dp == 1 ? 0 : 4);  // One all-reduce per weight gradient.
    absl::StatusOr<hlo::Literal> joined = EvaluatePartitioned(result->partitioned, inputs);
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_TRUE(CompareValues(*joined, expected, 1e-4).ok()) << CompareValues(*joined, expected, 1e-4);
  }
}

}  // namespace
}  // namespace xlad::sharding
