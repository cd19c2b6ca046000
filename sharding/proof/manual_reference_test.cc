#include "sharding/proof/manual_reference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

TEST(PartitionManualOnly, SplitsNothingElseAndComputesTheSame) {
  auto module = hlo::ParseText(hlo::TestText("sharding/proof/testdata/manual_loop.hlo"));
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(HasManualComputations(**module));
  const std::vector<hlo::Literal> inputs = SampleInputs(**module);
  auto reference = PartitionManualOnly((*module)->Clone(), {});
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (const TensorSharding& parameter : reference->program.parameters) EXPECT_TRUE(parameter.IsReplicated());
  for (const TensorSharding& result : reference->program.results) EXPECT_TRUE(result.IsReplicated());
  auto whole = RunPipeline(*std::move(module), {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_FALSE(whole->partitioned.parameters[0].IsReplicated());
  const auto expected = EvaluatePartitioned(reference->program, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto found = EvaluatePartitioned(whole->partitioned, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  const absl::Status same = CompareValues(*found, *expected, 1e-5);
  EXPECT_TRUE(same.ok()) << same;
}

// The scalar of each device becomes an element of an array that must be replicated.
TEST(PartitionManualOnly, ScalarsThatDifferBetweenDevicesAreGathered) {
  auto module = hlo::ParseText(R"(HloModule m, num_partitions=2,
  frontend_attributes={xla.sdy.meshes="{mesh = #sdy.mesh<[\"x\"=2]>}"}
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
ENTRY main {
  x = f32[6] parameter(0)
  in = f32[3] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes={
    xla.sdy.manual_axes="#sdy<manual_axes{\"x\"}>",
    xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\"x\"}]>]>"}
  lowest = f32[] constant(-inf)
  most = f32[] reduce(in, lowest), dimensions={0}, to_apply=max, frontend_attributes={xlad.manual_axes="x"}
  one = f32[1] reshape(most), frontend_attributes={xlad.manual_axes="x"}
  out = f32[2] custom-call(one), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={
    xla.sdy.manual_axes="#sdy<manual_axes{\"x\"}>",
    xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{\"x\"}]>]>"}
  ROOT r = f32[2] custom-call(out), custom_call_target="Sharding",
    frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{}]>]>"}
})");
  ASSERT_TRUE(module.ok()) << module.status();
  const auto program = RunPipeline(*std::move(module), {});
  ASSERT_TRUE(program.ok()) << program.status();
  tensor::Array x(tensor::Shape{tensor::ElementType::kF32, {6}});
  const float values[] = {1, 5, 2, 7, 3, 4};
  std::copy(std::begin(values), std::end(values), x.values<float>().begin());
  const auto found = EvaluatePartitioned(program->partitioned, {hlo::Literal(x)});
  ASSERT_TRUE(found.ok()) << found.status();
  const auto most = found->array.values<float>();
  EXPECT_EQ(std::vector<float>(most.begin(), most.end()), (std::vector<float>{5, 7}));
}

// A free axis that does not divide a manual shard: manual shards of 5 elements are split into 3 and 2, whereas the
// global 10 elements are split into 3, 3, 3 and 1.
TEST(PartitionManualOnly, FreeAxesThatDoNotDivideAManualShard) {
  auto module = hlo::ParseText(R"(HloModule m, num_partitions=4,
  frontend_attributes={xla.sdy.meshes="{mesh = #sdy.mesh<[\"x\"=2, \"z\"=2]>}"}
body { b = f32[5] parameter(0) ROOT e = f32[5] exponential(b) }
ENTRY main {
  x = f32[10] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"x\", \"z\"}]>"}
  in = f32[5] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes={
    xla.sdy.manual_axes="#sdy<manual_axes{\"x\"}>",
    xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\"x\", ?}]>]>"}
  k = f32[5] call(in), to_apply=body
  out = f32[10] custom-call(k), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={
    xla.sdy.manual_axes="#sdy<manual_axes{\"x\"}>",
    xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{\"x\", ?}]>]>"}
  ROOT r = f32[10] custom-call(out), custom_call_target="xla.sdy.FuncResultSharding",
    frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{\"x\", \"z\"}]>]>"}
})");
  ASSERT_TRUE(module.ok()) << module.status();
  const std::vector<hlo::Literal> inputs = SampleInputs(**module);
  const auto program = RunPipeline(*std::move(module), {});
  ASSERT_TRUE(program.ok()) << program.status();
  const auto found = EvaluatePartitioned(program->partitioned, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  for (int i = 0; i < 10; ++i) {
    EXPECT_FLOAT_EQ(found->array.values<float>()[i],
                    std::exp(inputs[0].array.values<float>()[i]));
  }
}

TEST(PartitionManualOnly, OtherProgramsHaveNoManualComputations) {
  EXPECT_FALSE(HasManualComputations(**hlo::ParseText("HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }")));
}

}  // namespace
}  // namespace xlad::sharding
