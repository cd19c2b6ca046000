// The conformance cases, from text and through protos, and the rules of comparison.
#include "hlo/eval/conformance.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_split.h"
#include "base/testing/test_folder.h"
#include "gtest/gtest.h"
#include "hlo/eval/evaluate.h"
#include "tensor/safetensors.h"

namespace xlad::hlo {
namespace {

using tensor::Array;
using tensor::ElementType;

Difference Floats(std::vector<float> actual, std::vector<float> expected, const Tolerance& tolerance) {
  const auto n = std::ssize(actual);
  return Compare(Array::FromValues<float>(ElementType::kF32, {n}, actual),
                 Array::FromValues<float>(ElementType::kF32, {n}, expected), tolerance);
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Compare, EveryKindOfToleranceHasItsRule) {
  const Tolerance equal, ulp{Tolerance::Kind::kUlp, 3}, absolute{Tolerance::Kind::kAbsolute, 0, 0.5, 0};
  const Tolerance close{Tolerance::Kind::kClose, 0, 0.1, 0.1};
  EXPECT_EQ(Floats({-0.0f, kNan, kInf}, {0.0f, kNan, kInf}, equal).mismatches, 0);
  EXPECT_EQ(Floats({1, kNan, kInf}, {1.0000001f, 1, -kInf}, equal).mismatches, 3);
  EXPECT_EQ(Floats({1, -0.0f, kNan}, {1.0000002f, 0.0f, kNan}, ulp).mismatches, 0);
  EXPECT_EQ(Floats({1, kInf, std::numeric_limits<float>::max()}, {1.000001f, -kInf, kInf}, ulp).mismatches, 3);
  EXPECT_EQ(Floats({1e-45f}, {-1e-45f}, ulp).mismatches, 0);
  EXPECT_EQ(Floats({1, 2}, {1.5f, 1.4f}, absolute).mismatches, 1);
  EXPECT_EQ(Floats({100, 0}, {109, 0.2f}, close).mismatches, 1);
  const Difference difference = Floats({1, 5, kInf}, {1, 7, 0}, equal);
  EXPECT_EQ(difference.first, 1);
  EXPECT_EQ(difference.max_absolute, 2);
  EXPECT_EQ(difference.non_finite, 1);
}

TEST(Compare, SignsOfZerosAndDenormals) {
  Tolerance strict{Tolerance::Kind::kUlp, 1};
  strict.signed_zero = true;
  EXPECT_EQ(Floats({0.0f, -0.0f}, {-0.0f, -0.0f}, strict).mismatches, 1);
  EXPECT_EQ(Floats({1e-39f, -1e-39f}, {0.0f, -0.0f}, strict).mismatches, 2);
  strict.flush_denormals = true;
  EXPECT_EQ(Floats({1e-39f, -1e-39f, 1e-39f}, {0.0f, -0.0f, -0.0f}, strict).mismatches, 1);
  EXPECT_EQ(Floats({kNan, kInf, 1.0000001f}, {kNan, kInf, 1}, strict).mismatches, 0);
}

TEST(Compare, LargeIntegersAreComparedExactly) {
  const auto compare = [](int64_t a, int64_t b) {
    return Compare(Array::FromValues<int64_t>(ElementType::kS64, {}, {a}),
                   Array::FromValues<int64_t>(ElementType::kS64, {}, {b}), {})
        .mismatches;
  };
  const int64_t big = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(compare(big, big), 0);
  EXPECT_EQ(compare(big, big - 1), 1);
  EXPECT_EQ(compare(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::min() + 1), 1);
}

// A listed case that passes is a failure; a listed case that fails is not.
TEST(ExpectedFailures, FailIfTheyPass) {
  FileSystem& files = RealFileSystem();
  const TestFolder own_folder;
  const std::string& folder = own_folder.path();
  const auto write = [&](const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(files.WriteAtomically(JoinPath(folder, name), bytes).ok());
  };
  std::string manifest;
  for (const std::string name : {"good", "bad"}) {
    manifest += R"({"name":")" + name +
                R"(","params":["f32[1]"],"results":["f32[1]"],"compare":[{"kind":"eq"}]})"
                "\n";
    write(name + ".hlo", "HloModule m\nENTRY e { p = f32[1] parameter(0)\n ROOT n = f32[1] negate(p) }");
    tensor::NamedArrays arrays;
    arrays["in.0"] = Array::FromValues<float>(ElementType::kF32, {1}, {2});
    arrays["out.0"] = Array::FromValues<float>(ElementType::kF32, {1}, {name == "good" ? -2.0f : 2.0f});
    write(name + ".safetensors", tensor::SerializeSafetensors(arrays));
  }
  write("manifest.jsonl", manifest);
  write("list", "# a comment\ngood  # not really\nbad  # of course\n");
  const auto plain = RunConformance(files, folder);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE((*plain)[0].passed);
  EXPECT_FALSE((*plain)[1].passed);
  EXPECT_EQ((*plain)[1].message, "result 0: 1 of 1 elements differ; element 0: found -2, expected 2");
  ConformanceOptions options;
  options.expected_failures = JoinPath(folder, "list");
  const auto listed = RunConformance(files, folder, options);
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_FALSE((*listed)[0].passed);
  EXPECT_TRUE((*listed)[1].passed);
  EXPECT_EQ((*listed)[1].message, "expected: of course");
  EXPECT_FALSE(RunConformance(files, JoinPath(folder, "nothing")).ok());
  options.stride = 0;
  EXPECT_EQ(RunConformance(files, folder, options).status().message(), "found stride 0, expected 1 or more");
}

// The cases in this repository, which tests/conformance/make_cases.py generates.
constexpr char kSlice[] = "tests/conformance/slice";

class SliceTest : public ::testing::TestWithParam<bool> {};

TEST_P(SliceTest, Passes) {
  ConformanceOptions options;
  options.through_proto = GetParam();
  const auto results = RunConformance(RealFileSystem(), kSlice, options);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_GT(results->size(), 300u);
  for (const ConformanceResult& result : *results) EXPECT_TRUE(result.passed) << result.name << ": " << result.message;
}

INSTANTIATE_TEST_SUITE_P(Form, SliceTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "proto" : "text"; });

// Every opcode is in a case of the slice, or the evaluator says why it is not evaluated.
TEST(Slice, CoversEveryOpcode) {
  const auto manifest = RealFileSystem().Read(JoinPath(kSlice, "manifest.jsonl"));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::set<std::string> covered;
  for (const absl::string_view line : absl::StrSplit(*manifest, '\n', absl::SkipWhitespace())) {
    const auto json = nlohmann::json::parse(line.begin(), line.end());
    for (const auto& opcode : json.at("opcodes")) covered.insert(opcode.get<std::string>());
  }
  for (int i = 0; i <= static_cast<int>(Opcode::kAsyncDone); ++i) {
    const auto opcode = static_cast<Opcode>(i);
    const std::string name(ToString(opcode));
    if (HasEvaluator(opcode)) {
      EXPECT_EQ(covered.count(name), 1u) << name << " is evaluated, but no case has it";
    } else {
      EXPECT_FALSE(WhyNoEvaluator(opcode).empty()) << name;
    }
  }
}

class ConformanceTest : public ::testing::TestWithParam<bool> {};

TEST_P(ConformanceTest, Passes) {
  const char* folder = std::getenv("XLAD_CONFORMANCE");
  if (folder == nullptr) GTEST_SKIP() << "XLAD_CONFORMANCE is not set";
  ConformanceOptions options;
  options.through_proto = GetParam();
  options.expected_failures = "hlo/testdata/conformance_expected_failures.txt";
  const auto results = RunConformance(RealFileSystem(), folder, options);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_GT(results->size(), 2000u);
  for (const ConformanceResult& result : *results) EXPECT_TRUE(result.passed) << result.name << ": " << result.message;
}

INSTANTIATE_TEST_SUITE_P(Form, ConformanceTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "proto" : "text"; });

}  // namespace
}  // namespace xlad::hlo
