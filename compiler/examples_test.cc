// Compiles the training programs in XLAD_EXAMPLES, runs their step lists, and compares the results with those of the
// original programs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/file_system.h"
#include "base/hash.h"
#include "compiler/testing/random_program.h"
#include "compiler/testing/run_steps.h"
#include "hlo/analysis/leaves.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "sharding/pipeline.h"

namespace xlad::compiler {
namespace {

using tensor::Array;

// Expects equal values except for rounding in the last bits. Adam divides by gradients, whose terms are added in
// another order. If terms of different signs nearly cancel, the quotient may differ more. This is accepted for at most
// one element in 10,000.
void ExpectNear(const Array& found, const Array& wanted, const std::string& what) {
  ASSERT_EQ(wanted.shape(), found.shape()) << what;
  if (wanted.shape().type != ElementType::kF32) {
    EXPECT_TRUE(wanted == found) << what;
    return;
  }
  const size_t size = wanted.values<float>().size();
  size_t canceled = 0;
  for (size_t i = 0; i < size; ++i) {
    const float a = wanted.values<float>()[i], b = found.values<float>()[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    ASSERT_FALSE(std::isinf(a) || std::isinf(b)) << what << " element " << i << ": found " << b << ", expected " << a;
    const float scale = std::max(1.0f, std::abs(a));
    if (std::abs(a - b) <= 1e-4 * scale) continue;
    ++canceled;
    ASSERT_NEAR(a, b, 1e-3 * scale) << what << " element " << i;
    ASSERT_LE(canceled * 10'000, size) << what << " element " << i << ": found " << b << ", expected " << a;
  }
}

std::unique_ptr<Module> ReadExample(const std::string& name) {
  auto text = RealFileSystem().Read(JoinPath(std::getenv("XLAD_EXAMPLES"), absl::StrCat(name, ".hlo")));
  EXPECT_TRUE(text.ok()) << text.status();
  auto module = hlo::ParseText(*text);
  EXPECT_TRUE(module.ok()) << module.status();
  return std::move(*module);
}

// Compiles `module` for `devices`, and runs both the module and its steps on the evaluator.
void CompareWithEvaluator(const Module& module, CompileRequest request, const std::string& name,
                          const std::vector<std::vector<Array>>& inputs) {
  if (const char* dump = std::getenv("XLAD_DUMP")) request.set_dump_directory(JoinPath(dump, name));
  auto compiled = CompileToSteps(module.Clone(), request, {.verify = true});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::vector<std::vector<hlo::Literal>> literals;
  for (const auto& device : inputs) {
    literals.emplace_back();
    for (const Array& input : device) literals.back().emplace_back(input);
  }
  auto expected = hlo::Evaluate(std::vector<const Module*>(inputs.size(), &module), literals);
  ASSERT_TRUE(expected.ok()) << expected.status();
  auto results = RunSteps(*compiled, inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  for (size_t d = 0; d < inputs.size(); ++d) {
    for (size_t r = 0; r < (*expected)[d].tuple.size(); ++r) {
      ExpectNear((*results)[d][r], (*expected)[d].tuple[r].array, absl::StrCat("result ", r, " of device ", d));
    }
  }
}

class Examples : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::getenv("XLAD_EXAMPLES") == nullptr) GTEST_SKIP() << "XLAD_EXAMPLES is not set";
  }
};

TEST_P(Examples, StepsHaveTheResultsOfTheProgram) {
  auto module = ReadExample(absl::StrCat(GetParam(), "/step.single"));
  auto random = SeededRandom(1);
  CompareWithEvaluator(*module, {}, GetParam(), {RandomInputs(*module, random.get())});
}

INSTANTIATE_TEST_SUITE_P(All, Examples,
                         testing::Values("digits_mlp", "dropout_rng", "nano_gpt", "nano_gpt_bf16", "cnn", "lstm", "moe",
                                         "ring_shard_map"));

class PartitionedExamples : public Examples {};

TEST_P(PartitionedExamples, StepsHaveTheResultsOfTheProgram) {
  sharding::PipelineOptions options;
  options.check = false;
  auto sharded = sharding::RunPipeline(ReadExample(GetParam()), options);
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  const sharding::PartitionedProgram& program = sharded->partitioned;
  ASSERT_EQ(program.variants.size(), 1u);
  const Module& module = *program.variants[0].module;
  const int64_t devices = program.mesh.devices();
  CompileRequest request;
  for (const sharding::Axis& axis : program.mesh.axes()) {
    request.add_mesh()->set_name(axis.name);
    request.mutable_mesh()->rbegin()->set_size(axis.size);
  }
  // Devices with the same box of a parameter get the same values.
  std::vector<std::vector<Array>> inputs(devices);
  std::vector<const Shape*> leaves;
  for (const Instruction* parameter : module.entry()->parameters()) AppendLeaves(parameter->shape(), &leaves);
  for (size_t p = 0; p < leaves.size(); ++p) {
    EntryValue* value = request.add_parameters();
    for (int64_t d = 0; d < devices; ++d) {
      const tensor::Box box = sharding::BoxOf(program.parameter_shapes[p].dims, program.mesh, program.parameters[p], d);
      value->add_boxes()->mutable_lo()->Add(box.lo.begin(), box.lo.end());
      value->mutable_boxes()->rbegin()->mutable_hi()->Add(box.hi.begin(), box.hi.end());
      auto random = SeededRandom(Hash64(absl::StrCat(p, box.ToString())));
      inputs[d].push_back(RandomArray(leaves[p]->array(), random.get()));
    }
  }
  CompareWithEvaluator(module, request, GetParam(), inputs);
}

INSTANTIATE_TEST_SUITE_P(All, PartitionedExamples,
                         testing::Values("digits_mlp/step.dp4_tp2", "dropout_rng/step.dp4", "cnn/step.dp2_spatial2",
                                         "lstm/step.dp2_tp2", "moe/step.dp2_ep4", "nano_gpt/step.fsdp4_tp2",
                                         "nano_gpt_bf16/step.fsdp2_tp4"));

}  // namespace
}  // namespace xlad::compiler
