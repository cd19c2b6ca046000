// Bytes of collectives in partitioned programs, compared with numbers computed by hand.
#include "sharding/explain/explain.h"

#include <gtest/gtest.h>

#include "hlo/text/text.h"

namespace xlad::sharding {
namespace {

PartitionedProgram ProgramOnMesh(const std::string& text, const char* mesh) {
  PartitionedProgram program;
  program.mesh = *ParseMesh(mesh);
  absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  program.variants.push_back({*std::move(module), {}});
  return program;
}

TEST(Explain, BytesEqualThoseComputedByHand) {
  const PartitionedProgram program = ProgramOnMesh(R"(HloModule m, num_partitions=4
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[8,4] parameter(0)
  r = f32[8,4] all-reduce(x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add
  s = f32[2,4] reduce-scatter(r), channel_id=2, replica_groups={{0,1,2,3}}, use_global_device_ids=true,
      dimensions={0}, to_apply=add
  g = f32[4,4] all-gather(s), channel_id=3, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, dimensions={0}
  a = f32[4,4] all-to-all(g), channel_id=4, replica_groups={{0,1,2,3}}, dimensions={0}
  ROOT p = f32[4,4] collective-permute(a), channel_id=5, source_target_pairs={{0,1},{1,0}}
})",
                                                   "dp=4");
  absl::StatusOr<Explanation> explanation = Explain(program);
  ASSERT_TRUE(explanation.ok()) << explanation.status();
  std::vector<int64_t> bytes;
  for (const ExplainedCollective& c : explanation->collectives) bytes.push_back(c.bytes);
  EXPECT_EQ(bytes, (std::vector<int64_t>{192, 96, 32, 48, 64}));
  EXPECT_EQ(explanation->bytes_per_device, 192 + 96 + 32 + 48 + 64);
  for (const ExplainedCollective& c : explanation->collectives) {
    EXPECT_EQ(c.trip_count, 1);
    EXPECT_GE(c.wire_bytes, c.bytes);
  }
}

// Fractions of bytes are added before the total is rounded.
TEST(Explain, RoundsTheTotalOnly) {
  std::string text = R"(HloModule m, num_partitions=3
add { a = s8[] parameter(0) b = s8[] parameter(1) ROOT c = s8[] add(a, b) }
ENTRY main {
  x = s8[] parameter(0)
)";
  std::string last = "x";
  for (int i = 1; i <= 3; ++i) {
    absl::StrAppend(&text, i == 3 ? "  ROOT " : "  ", "r", i, " = s8[] all-reduce(", last, "), channel_id=", i,
                    ", replica_groups={{0,1,2}}, use_global_device_ids=true, to_apply=add\n");
    last = absl::StrCat("r", i);
  }
  absl::StatusOr<Explanation> explanation = Explain(ProgramOnMesh(text + "}", "dp=3"));
  ASSERT_TRUE(explanation.ok()) << explanation.status();
  EXPECT_EQ(explanation->bytes_per_device, 4);  // 3 all-reduces of 4/3 bytes each.
}

}  // namespace
}  // namespace xlad::sharding
