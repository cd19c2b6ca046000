// Programs of testdata/ and of the folder $XLAD_CASES are partitioned, compiled, run on the devices of their meshes,
// and compared with the evaluator. Programs with tuple parameters or large arrays are only parsed. Programs for many
// devices are only parsed and imported.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdlib>
#include <filesystem>

#include "base/file_system.h"
#include "base/random.h"
#include "base/testing/case_count.h"
#include "compiler/testing/random_program.h"
#include "hlo/analysis/leaves.h"
#include "hlo/text/text.h"
#include "sharding/import/import.h"
#include "tests/differential/try_program.h"

namespace xlad {
namespace {

constexpr int64_t kMaxElements = 1 << 19;  // The limit for each array, because the evaluator is slow.
constexpr int64_t kMaxDevices = 16;

// The error of f32, f64, c64 and c128 relative to the largest element. It is not 0, because sums across devices have a
// different order than in the evaluator.
constexpr double kRelativeError = 1e-5;

bool CanRun(const hlo::Module& module) {
  for (const hlo::Instruction* parameter : module.entry()->parameters()) {
    if (!parameter->shape().is_array()) return false;
  }
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      for (const hlo::Shape* leaf : hlo::Leaves(instruction->shape())) {
        if (leaf->is_array() && leaf->elements() > kMaxElements) return false;
      }
    }
  }
  return true;
}

double LargestFinite(const tensor::Array& array) {
  double largest = 0;
  const auto visit = [&largest](auto values) {
    for (const auto value : values) {
      const double size = std::abs(value);
      if (std::isfinite(size)) largest = std::max(largest, size);
    }
  };
  if (array.shape().type == tensor::ElementType::kF32) visit(array.values<float>());
  if (array.shape().type == tensor::ElementType::kF64) visit(array.values<double>());
  if (array.shape().type == tensor::ElementType::kC64) visit(array.values<std::complex<float>>());
  if (array.shape().type == tensor::ElementType::kC128) visit(array.values<std::complex<double>>());
  return largest;
}

// Returns how exactly the results for the inputs of `test` must agree.
std::vector<compiler::Exactness> ExactnessOf(const hlo::Module& module, const Case& test) {
  const auto random = SeededRandom(test.seed + 1);
  const auto results = Meaning(module, LiteralsOf(compiler::RandomInputs(module, random.get(), test.special)));
  std::vector<compiler::Exactness> exactness;
  if (!results.ok()) return exactness;  // TryAnnotated reports the error.
  for (const tensor::Array& array : compiler::ArraysOf(*results)) {
    exactness.push_back({compiler::Agreement::kNumbers, kRelativeError * LargestFinite(array)});
  }
  return exactness;
}

void Check(const std::filesystem::path& path) {
  SCOPED_TRACE(path.string());
  const auto text = RealFileSystem().Read(path.string());
  ASSERT_TRUE(text.ok()) << text.status();
  auto module = hlo::ParseText(*text);
  ASSERT_TRUE(module.ok()) << module.status();
  if (!CanRun(**module)) return;
  const auto imported = sharding::Import((*module)->Clone(), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  Case test;
  test.mesh = imported->mesh;
  if (test.mesh.devices() > kMaxDevices) return;
  test.special.assign((*module)->entry()->parameters().size(), false);
  for (test.seed = 1; test.seed <= CaseCount(1, 3); ++test.seed) {
    test.exactness = ExactnessOf(**module, test);
    EXPECT_EQ(InChild(TryAnnotated, **module, test), "") << "seed " << test.seed;
  }
}

TEST(Programs, AgreeWithTheEvaluator) {
  std::vector<std::string> folders = {"tests/differential/testdata"};
  if (const char* given = std::getenv("XLAD_CASES")) folders.push_back(given);
  int tried = 0;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".hlo") continue;
      Check(entry.path());
      ++tried;
    }
  }
  EXPECT_GT(tried, 0);
}

}  // namespace
}  // namespace xlad
