// Cases in which the cheapest way to split a single op is not the cheapest way for the program.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "sharding/explain/explain.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

// Returns one string per collective of the partitioned program ("all-gather 192" sends 192 bytes), and compares the
// program's results with the source program's. "$whole" and "$split" in the text are annotations.
std::vector<std::string> ChosenCollectives(const std::string& body) {
  const std::string annotation = ", frontend_attributes={xla.sdy.sharding=\"#sdy.sharding<@mesh, [{AXES}, {}]>\"}";
  const std::string text = absl::StrReplaceAll(
      absl::StrCat("HloModule m, frontend_attributes={xla.sdy.meshes=\"{mesh = #sdy.mesh<[\\\"dp\\\"=4]>}\"}\n", body),
      {{"$whole", absl::StrReplaceAll(annotation, {{"AXES", ""}})},
       {"$split", absl::StrReplaceAll(annotation, {{"AXES", "\\\"dp\\\""}})}});
  absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok()) return {};
  const std::vector<hlo::Literal> inputs = SampleInputs(**module);
  const hlo::Literal whole = *hlo::Evaluate(**module, inputs);
  absl::StatusOr<PipelineResult> result = RunPipeline(*std::move(module), {});
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return {};
  const hlo::Literal joined = *EvaluatePartitioned(result->partitioned, inputs);
  EXPECT_TRUE(CompareValues(joined, whole, 1e-5).ok()) << CompareValues(joined, whole, 1e-5);
  std::vector<std::string> collectives;
  const Explanation explanation = *Explain(result->partitioned);
  for (const ExplainedCollective& c : explanation.collectives) {
    collectives.push_back(absl::StrCat(c.kind, " ", c.bytes));
  }
  return collectives;
}

// Sending each slice would take 96 bytes and a halo exchange, whereas one all-gather of the operand is enough for all
// slices.
TEST(ShardingChooser, SlicesShareTheirOperand) {
  EXPECT_EQ(ChosenCollectives(R"(ENTRY main {
  x = f32[16,4] parameter(0)$split
  even = f32[7,4] slice(x), slice={[0:13:2], [0:4]}$whole
  odd = f32[7,4] slice(x), slice={[1:14:2], [0:4]}$whole
  late = f32[7,4] slice(x), slice={[2:15:2], [0:4]}$whole
  a = f32[7,4] add(even, odd)
  ROOT b = f32[7,4] multiply(a, late)$whole
})"),
            std::vector<std::string>{"all-gather 192"});
}

// A single small slice is computed before it is gathered.
TEST(ShardingChooser, OneSliceIsGatheredAlone) {
  const std::vector<std::string> found = ChosenCollectives(R"(ENTRY main {
  x = f32[64,4] parameter(0)$split
  y = f32[8,4] slice(x), slice={[0:64:8], [0:4]}$whole
  ROOT z = f32[8,4] negate(y)$whole
})");
  EXPECT_EQ(found, std::vector<std::string>{"all-gather 96"});
}

}  // namespace
}  // namespace xlad::sharding
