// Estimates of the bytes that kernels move, counted by hand.
#include "compiler/analysis/kernel_cost.h"

#include <gtest/gtest.h>

#include <string>

#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

TEST(KernelCost, BytesOfReducedOperandsAreCountedCompletely) {
  const auto module = hlo::ParseText(hlo::TestText("compiler/analysis/testdata/kernel_cost.hlo"));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto bytes = [&](const std::string& name) {
    for (const auto& instruction : (*module)->entry()->instructions()) {
      if (instruction->name() == name) return BytesMoved(*instruction);
    }
    return -1.0;
  };
  const double whole = 4 * 64 * 64, scalar = 4, corner = 4 * 8 * 8;
  EXPECT_EQ(bytes("slice"), 2 * corner);
  EXPECT_EQ(bytes("sums"), whole + scalar + 4 * 64);
  EXPECT_EQ(bytes("windows"), whole + scalar + corner);
  EXPECT_EQ(bytes("fusion"), whole + scalar + corner);
}

}  // namespace
}  // namespace xlad::compiler
