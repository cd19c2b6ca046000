// The training steps under XLAD_EXAMPLES, compiled to steps and run on the evaluator.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/file_system.h"
#include "compiler/report.h"
#include "compiler/testing/random_program.h"
#include "compiler/testing/run_steps.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text.h"
#include "hlo/verifier.h"

namespace xlad::compiler {
namespace {

using tensor::Array;

class Examples : public testing::TestWithParam<const char*> {};

TEST_P(Examples, CompiledStepsAreTheProgram) {
  const char* folder = std::getenv("XLAD_EXAMPLES");
  if (folder == nullptr) GTEST_SKIP() << "XLAD_EXAMPLES is not set";
  auto text = RealFileSystem().Read(JoinPath(folder, absl::StrCat(GetParam(), ".hlo")));
  ASSERT_TRUE(text.ok()) << text.status();
  auto module = hlo::ParseText(*text);
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(hlo::Verify(**module).ok()) << hlo::Verify(**module);
  CompileRequest request;
  if (const char* dump = std::getenv("XLAD_DUMP")) request.set_dump_directory(JoinPath(dump, GetParam()));
  auto compiled = CompileToSteps((*module)->Clone(), request, {.verify = true});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  if (std::getenv("XLAD_DUMP") != nullptr) {
    std::cout << TimesText(compiled->times) << "arena " << compiled->assignment.arena_bytes << " peak "
              << compiled->assignment.peak_bytes << " steps " << compiled->steps.steps.size() << "\n";
  }
  auto random = SeededRandom(1);
  std::vector<Array> inputs = RandomInputs(**module, random.get());
  std::vector<hlo::Literal> literals;
  for (const Array& input : inputs) literals.emplace_back(input);
  auto expected = hlo::Evaluate(**module, literals);
  ASSERT_TRUE(expected.ok()) << expected.status();
  auto results = RunSteps(*compiled, {inputs});
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(expected->tuple.size(), (*results)[0].size());
  for (size_t r = 0; r < expected->tuple.size(); ++r) {
    const Array& wanted = expected->tuple[r].array;
    const Array& found = (*results)[0][r];
    ASSERT_EQ(wanted.shape(), found.shape());
    if (wanted.shape().type != ElementType::kF32) {
      EXPECT_TRUE(wanted == found) << "result " << r;
      continue;
    }
    for (int64_t i = 0; i < wanted.elements(); ++i) {
      const float a = wanted.values<float>()[static_cast<size_t>(i)], b = found.values<float>()[static_cast<size_t>(i)];
      if (std::isnan(a) && std::isnan(b)) continue;
      ASSERT_NEAR(a, b, 1e-4 * std::max(1.0f, std::abs(a))) << "result " << r << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Examples, testing::Values("digits_mlp/step.single", "dropout_rng/step.single", "nano_gpt/step.single",
                                         "nano_gpt_bf16/step.single", "cnn/step.single", "lstm/step.single",
                                         "moe/step.single", "ring_shard_map/step.single"));

}  // namespace
}  // namespace xlad::compiler
