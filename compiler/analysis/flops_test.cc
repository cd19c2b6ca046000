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
      {"negated", 60}, {"sum", 60}, {"squares", 2 * 60}, {"windows", 2 * 3 * 24}, {"dot", 2 * 10 * 36}};
  for (const auto& instruction : (*module)->entry()->instructions()) {
    const auto found = expected.find(instruction->name());
    EXPECT_EQ(FlopsOf(*instruction), found == expected.end() ? 0 : found->second) << instruction->name();
  }
}

}  // namespace
}  // namespace xlad::compiler
