// Floating-point operations of instructions, counted by hand.
#include "compiler/analysis/flops.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

TEST(Flops, OfEachKindOfInstruction) {
  const auto module = hlo::ParseText(hlo::TestText("compiler/analysis/testdata/flops.hlo"));
  ASSERT_TRUE(module.ok()) << module.status();
  const std::map<std::string, double> expected = {
      {"negated", 60},
      {"sum", 60},
      {"squares", 2 * 60},
      {"windows", 2 * 3 * 24},
      {"dot", 2 * 10 * 36},
      {"complex_dot", 8 * 10 * 36},
      {"ragged", 2 * 10 * 6 * 3},        // Each row is multiplied by one of the four matrices.
      {"ragged_sums", 2 * 6 * 10 * 10},  // Each row is added to one of the four sums.
      {"scatter", 50},
      {"selected", 15},
      {"cholesky", 2 * 72},
      {"solve", 2 * 6 * 54},
      {"qr", 2 * 9 * 36 - 144},
      {"q", 4 * 9 * 36 - 2 * 15 * 36 + 4 * 72},  // In general: 4 m n k - 2 (m + n) k^2 + 4/3 k^3.
      {"applied", 4 * 9 * 4 * 6 - 2 * 4 * 36},
      {"complex_lu", 4 * 144}};                  // Two thirds of 6^3 for real numbers.
  for (const auto& instruction : (*module)->entry()->instructions()) {
    const auto found = expected.find(instruction->name());
    EXPECT_EQ(FlopsOf(*instruction), found == expected.end() ? 0 : found->second) << instruction->name();
  }
}

}  // namespace
}  // namespace xlad::compiler
