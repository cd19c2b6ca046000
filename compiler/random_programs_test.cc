// Random programs compiled to steps and run on their buffers, against the evaluator on the program as it was.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/testing/random_program.h"
#include "compiler/testing/run_steps.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text.h"
#include "hlo/verifier.h"

namespace xlad::compiler {
namespace {

using tensor::Array;

void AppendArrays(const hlo::Literal& literal, std::vector<Array>* arrays) {
  if (!literal.is_tuple) {
    arrays->push_back(literal.array);
    return;
  }
  for (const hlo::Literal& element : literal.tuple) AppendArrays(element, arrays);
}

// Equal within rounding of what the passes may reorder: nothing but the sign of zero and a last bit or two.
bool Near(const Array& found, const Array& expected) {
  if (found.shape() != expected.shape()) return false;
  if (found.shape().type != ElementType::kF32) return found == expected;
  for (size_t i = 0; i < found.values<float>().size(); ++i) {
    const float a = found.values<float>()[i], b = expected.values<float>()[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b) continue;
    if (!(std::abs(a - b) <= 1e-5f * std::max({1.0f, std::abs(a), std::abs(b)}))) return false;
  }
  return true;
}

void RunBoth(uint64_t seed, int instructions, int devices) {
  SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", instructions, " instructions, ", devices, " devices"));
  std::unique_ptr<Module> module = RandomProgram(seed, instructions, devices);
  const std::string text = hlo::PrintText(*module);
  ASSERT_TRUE(hlo::Verify(*module).ok()) << hlo::Verify(*module) << "\n" << text;
  auto random = SeededRandom(seed + 1);
  std::vector<std::vector<Array>> inputs;
  std::vector<std::vector<hlo::Literal>> literals;
  for (int d = 0; d < devices; ++d) {
    inputs.push_back(RandomInputs(*module, random.get()));
    literals.emplace_back();
    for (const Array& input : inputs.back()) literals.back().emplace_back(input);
  }
  auto expected = hlo::Evaluate(std::vector<const Module*>(inputs.size(), module.get()), literals);
  ASSERT_TRUE(expected.ok()) << expected.status() << "\n" << text;
  CompileOptions options;
  options.verify = true;
  auto compiled = CompileToSteps(module->Clone(), {}, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status() << "\n" << text;
  auto results = RunSteps(*compiled, inputs);
  const std::string after =
      absl::StrCat(text, "\n", hlo::PrintText(*compiled->module), "\n", ToString(compiled->program));
  ASSERT_TRUE(results.ok()) << results.status() << "\n" << after;
  for (size_t d = 0; d < inputs.size(); ++d) {
    std::vector<Array> wanted;
    AppendArrays((*expected)[d], &wanted);
    ASSERT_EQ(wanted.size(), (*results)[d].size());
    for (size_t r = 0; r < wanted.size(); ++r) {
      ASSERT_TRUE(Near((*results)[d][r], wanted[r])) << "result " << r << " of device " << d << "\n" << after;
    }
  }
}

TEST(RandomPrograms, OneDevice) {
  for (uint64_t seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
    RunBoth(seed, 3 + static_cast<int>(seed % 25), 1);
  }
}

TEST(RandomPrograms, ManyDevices) {
  for (uint64_t seed = 1000; seed < 1150 && !testing::Test::HasFailure(); ++seed) {
    RunBoth(seed, 3 + static_cast<int>(seed % 17), 2 + static_cast<int>(seed % 3));
  }
}

}  // namespace
}  // namespace xlad::compiler
