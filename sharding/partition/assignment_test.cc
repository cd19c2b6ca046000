// Tests assignments through partitioned programs, by their results (compared with the evaluator) and their collectives.
#include "sharding/partition/assignment.h"

#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "sharding/explain/explain.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

// Partitions the program, checks the results, and returns the kinds of its collectives.
std::vector<std::string> CollectivesOf(const std::string& text) {
  auto module = hlo::ParseText(text);
  XLAD_CHECK(module.ok()) << module.status() << text;
  const std::vector<hlo::Literal> inputs = SampleInputs(**module, 5);
  const auto expected = hlo::Evaluate(**module, inputs);
  XLAD_CHECK(expected.ok()) << expected.status();
  const auto result = RunPipeline(*std::move(module), {});
  XLAD_CHECK(result.ok()) << result.status() << text;
  const auto found = EvaluatePartitioned(result->partitioned, inputs);
  XLAD_CHECK(found.ok()) << found.status();
  EXPECT_TRUE(CompareValues(*found, *expected, 1e-5).ok()) << CompareValues(*found, *expected, 1e-5) << text;
  const auto explanation = Explain(result->partitioned);
  XLAD_CHECK(explanation.ok()) << explanation.status();
  std::vector<std::string> kinds;
  for (const ExplainedCollective& collective : explanation->collectives) kinds.push_back(collective.kind);
  return kinds;
}

// The axes of a dimension that must not be split move to a dimension that may be. This takes an all-to-all before the
// op and another one after it. If the other dimension has size 1, the array is gathered instead.
TEST(Assignment, AnUnsplittableDimensionExchangesItsAxes) {
  constexpr absl::string_view kText = R"(HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["a"=4]>}}
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = f32[ROWS,32] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {\"a\"}]>"}
  s = f32[ROWS,32] sort(x), dimensions={1}, is_stable=true, to_apply=less
  ROOT r = f32[ROWS,32] negate(s), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {\"a\"}]>"}
})";
  EXPECT_EQ(CollectivesOf(absl::StrReplaceAll(kText, {{"ROWS", "8"}})),
            (std::vector<std::string>{"all-to-all", "all-to-all"}));
  EXPECT_EQ(CollectivesOf(absl::StrReplaceAll(kText, {{"ROWS", "1"}})), std::vector<std::string>{"all-gather"});
}

}  // namespace
}  // namespace xlad::sharding
