#include "sharding/import/expand_batch_norm.h"

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "sharding/explain/explain.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

constexpr absl::string_view kTraining = R"(HloModule m
ENTRY e {
  x = $T[$X] parameter(0)
  s = $T[$F] parameter(1)
  o = $T[$F] parameter(2)
  ROOT b = ($T[$X], $T[$F], $T[$F]) batch-norm-training(x, s, o), epsilon=0.01, feature_index=$I
})";
// The variance is computed as a square because it must not be negative.
constexpr absl::string_view kGradient = R"(HloModule m
ENTRY e {
  x = $T[$X] parameter(0)
  s = $T[$F] parameter(1)
  m = $T[$F] parameter(2)
  r = $T[$F] parameter(3)
  v = $T[$F] multiply(r, r)
  g = $T[$X] parameter(4)
  ROOT b = ($T[$X], $T[$F], $T[$F]) batch-norm-grad(x, s, m, v, g), epsilon=0.01, feature_index=$I
})";

TEST(ExpandBatchNorm, KeepsTheResults) {
  struct Case {
    const char *dims, *feature, *features;
  };
  for (const absl::string_view program : {kTraining, kGradient}) {
    for (const Case& c : {Case{"4,3,2", "2", "2"}, {"4,3,2", "0", "4"}, {"5,3", "1", "3"}, {"6", "0", "6"}}) {
      for (const char* type : {"f32", "f64", "bf16", "f16"}) {
        const std::string text =
            absl::StrReplaceAll(program, {{"$T", type}, {"$X", c.dims}, {"$F", c.features}, {"$I", c.feature}});
        SCOPED_TRACE(text);
        auto module = hlo::ParseText(text);
        ASSERT_TRUE(module.ok()) << module.status();
        const std::vector<hlo::Literal> inputs = SampleInputs(**module, 3);
        const auto expected = hlo::Evaluate(**module, inputs);
        ASSERT_TRUE(expected.ok()) << expected.status();
        ExpandBatchNorms(module->get());
        ASSERT_TRUE(hlo::Verify(**module).ok()) << hlo::Verify(**module);
        EXPECT_FALSE(absl::StrContains(hlo::PrintText(**module), "batch-norm"));
        const auto found = hlo::Evaluate(**module, inputs);
        ASSERT_TRUE(found.ok()) << found.status();
        const double tolerance = std::string(type).back() == '6' ? 2e-2 : 1e-5;
        EXPECT_TRUE(CompareValues(*found, *expected, tolerance).ok()) << CompareValues(*found, *expected, tolerance);
      }
    }
  }
}

// Only sums per feature are communicated.
TEST(ExpandBatchNorm, TheBatchStaysSplit) {
  auto module = hlo::ParseText(R"(HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["d"=8]>}}
ENTRY e {
  x = f32[256,14,14,64] parameter(0),
    frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"d\"}, {}, {}, {}]>"}
  s = f32[64] parameter(1)
  o = f32[64] parameter(2)
  b = (f32[256,14,14,64], f32[64], f32[64]) batch-norm-training(x, s, o), epsilon=0.001, feature_index=3
  ROOT y = f32[256,14,14,64] get-tuple-element(b), index=0
})");
  ASSERT_TRUE(module.ok()) << module.status();
  const auto result = RunPipeline(*std::move(module), {});
  ASSERT_TRUE(result.ok()) << result.status();
  const auto explanation = Explain(result->partitioned);
  ASSERT_TRUE(explanation.ok()) << explanation.status();
  for (const ExplainedCollective& collective : explanation->collectives) EXPECT_EQ(collective.kind, "all-reduce");
  EXPECT_EQ(explanation->bytes_per_device, 2 * 2 * 64 * 4 * 7 / 8);  // Two all-reduces of f32[64].
}

}  // namespace
}  // namespace xlad::sharding
