// Programs with more arrays than one kernel can read.
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "compiler/passes/kernel_limits.h"
#include "compiler/pipeline.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

constexpr int kArrays = 2 * static_cast<int>(kMaxKernelOperands) + 7;

// A program with kArrays parameters p0, p1, ... of type f32[2], and this root.
std::string ManyArrays(const std::string& instructions) {
  std::string text = "HloModule m\nENTRY e {\n";
  for (int i = 0; i < kArrays; ++i) absl::StrAppend(&text, "  p", i, " = f32[2] parameter(", i, ")\n");
  return absl::StrCat(text, instructions, "}\n");
}

// Compiles the program. Checks that no instruction reads too many arrays and that the results are the same.
void ExpectFewOperands(const std::string& text) {
  const auto module = hlo::ParseText(text);
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<hlo::Literal> inputs;
  for (int i = 0; i < kArrays; ++i) {
    const std::vector<float> values = {static_cast<float>(i % 7), static_cast<float>(i % 5)};
    inputs.emplace_back(tensor::Array::FromValues(tensor::ElementType::kF32, {2}, values));
  }
  const auto expected = hlo::Evaluate(**module, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  PassContext context;
  const absl::Status compiled = RunPipeline(**module, context, {}, nullptr);
  ASSERT_TRUE(compiled.ok()) << compiled;
  for (const auto& instruction : (*module)->entry()->instructions()) {
    EXPECT_LE(instruction->operand_count(), kMaxKernelOperands) << hlo::PrintText(**module);
  }
  const auto found = hlo::Evaluate(**module, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(*found == *expected);
}

TEST(ManyOperands, ASumOfArrays) {
  std::string sum = "  s1 = f32[2] add(p0, p1)\n";
  for (int i = 2; i < kArrays; ++i) {
    absl::StrAppend(&sum, i + 1 == kArrays ? "  ROOT s" : "  s", i, " = f32[2] add(s", i - 1, ", p", i, ")\n");
  }
  ExpectFewOperands(ManyArrays(sum));
}

TEST(ManyOperands, AConcatenation) {
  std::vector<std::string> names;
  for (int i = 0; i < kArrays; ++i) names.push_back(absl::StrCat("p", i));
  ExpectFewOperands(ManyArrays(absl::StrCat("  ROOT c = f32[", 2 * kArrays, "] concatenate(",
                                            absl::StrJoin(names, ", "), "), dimensions={0}\n")));
}

}  // namespace
}  // namespace xlad::compiler
