// Aliases of parameters and results in partitioned programs.
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "hlo/text/text.h"
#include "sharding/pipeline.h"

namespace xlad::sharding {
namespace {

// Partitions a program over two devices whose result is aliased with its parameter, which is split by rows. `split` is
// the sharding of the result.
absl::StatusOr<PipelineResult> PartitionAliased(absl::string_view kind, absl::string_view split) {
  const std::string text = absl::Substitute(
      R"(HloModule m, input_output_alias={ {}: (0, {}, $0) },
    frontend_attributes={xla.sdy.meshes="{m = #sdy.mesh<['d'=2]>}"}
ENTRY main {
  x = f32[4,8] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@m, [{'d'}, {}]>"}
  ROOT y = f32[4,8] negate(x), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@m, [$1]>"}
})",
      kind, split);
  absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(absl::StrReplaceAll(text, {{"'", "\\\""}}));
  if (!module.ok()) return module.status();
  return RunPipeline(*std::move(module), {});
}

TEST(Alias, EqualShardsStayAliased) {
  for (const char* kind : {"may-alias", "must-alias"}) {
    const absl::StatusOr<PipelineResult> result = PartitionAliased(kind, "{'d'}, {}");
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->partitioned.variants[0].module->input_output_alias.size(), 1u) << kind;
  }
}

TEST(Alias, UnequalShardsMayNotBeAliased) {
  const absl::StatusOr<PipelineResult> result = PartitionAliased("may-alias", "{}, {'d'}");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->partitioned.variants[0].module->input_output_alias.empty());
  const absl::Status refused = PartitionAliased("must-alias", "{}, {'d'}").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "input_output_alias of result {} and parameter 0 {}: found must-alias of the shards f32[4,4] and f32[2,8], "
            "expected shards of equal shapes: give both the same sharding, or use may-alias");
}

}  // namespace
}  // namespace xlad::sharding
