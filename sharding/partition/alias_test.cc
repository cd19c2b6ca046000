// Aliases of parameters and results in partitioned programs.
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "base/file_system.h"
#include "base/testing/test_folder.h"
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

// A program whose first result must be aliased with w. If the annotation of v is propagated first, the result is split
// by columns; in the order kStateLast it is split by rows, as x.
absl::StatusOr<PipelineResult> PartitionWithTwoOrders(absl::string_view of_w, const std::string& dumps) {
  const std::string text = absl::Substitute(
      R"(HloModule m, input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {}, may-alias) },
    frontend_attributes={xla.sdy.meshes="{m = #sdy.mesh<['d'=4]>}"}
ENTRY main {
  w = f32[64,32] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@m, [$0]>"}
  v = f32[64,32] parameter(1), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@m, [{}, {'d'}]>"}
  x = f32[64,32] parameter(2), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@m, [{'d'}, {}]>"}
  m = f32[64,32] multiply(v, x)
  s = f32[64,32] sine(m)
  n = f32[64,32] negate(v)
  ROOT all = (f32[64,32], f32[64,32]) tuple(s, n)
})",
      of_w);
  absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(absl::StrReplaceAll(text, {{"'", "\\\""}}));
  if (!module.ok()) return module.status();
  PipelineOptions options;
  options.dump_directory = dumps;
  return RunPipeline(*std::move(module), options);
}

TEST(Alias, TheOrderOfPropagationThatKeepsAMustAliasIsChosen) {
  const TestFolder folder;
  for (const std::string& dumps : {std::string(), folder.path()}) {
    const absl::StatusOr<PipelineResult> result = PartitionWithTwoOrders("{'d'}, {}", dumps);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->partitioned.variants[0].module->input_output_alias.size(), 2u);
  }
}

TEST(Alias, AMustAliasThatNoOrderKeepsIsAnErrorAfterTheDumps) {
  const TestFolder folder;
  for (const std::string& dumps : {std::string(), folder.path()}) {
    const absl::Status refused = PartitionWithTwoOrders("{}, {}", dumps).status();
    EXPECT_EQ(refused.message(),
              "input_output_alias of result {0} and parameter 0 {}: found must-alias of the shards f32[64,8] and "
              "f32[64,32], expected shards of equal shapes: give both the same sharding, or use may-alias");
  }
  for (const char* file : {"3.partition.hlo", "5.partition-alternative.hlo"}) {
    EXPECT_TRUE(RealFileSystem().Read(JoinPath(folder.path(), file)).ok()) << file;
  }
}

}  // namespace
}  // namespace xlad::sharding
