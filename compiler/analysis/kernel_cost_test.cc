// Estimates of the bytes that kernels move, counted by hand.
#include "compiler/analysis/kernel_cost.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

TEST(KernelCost, BytesOfOperandsThatAreLargerThanResults) {
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
  EXPECT_EQ(bytes("topk"), whole + 2 * 4 * 64 * 3);
  EXPECT_EQ(bytes("fft"), 8 * 64 * 33 + whole);
  EXPECT_EQ(bytes("solve"), whole + 2 * 4 * 64);
}

// The estimate is that of the multiplications, whatever the last dimension of the result is.
TEST(KernelCost, ConvolutionsCostTheSameInEveryLayout) {
  for (const auto& [result, labels] : {std::pair("f32[2,8,8,5]", "b01f_01io->b01f"),
                                       {"f32[2,5,8,8]", "b01f_01io->bf01"},
                                       {"f32[5,8,8,2]", "b01f_01io->f01b"}}) {
    const auto module = hlo::ParseText(absl::StrCat(
        "HloModule m\nENTRY e {\n  x = f32[2,8,8,3] parameter(0)\n  k = f32[1,1,3,5] parameter(1)\n  ROOT r = ",
        result, " convolution(x, k), window={size=1x1}, dim_labels=", labels, "\n}\n"));
    ASSERT_TRUE(module.ok()) << module.status();
    const double products = 2 * 5 * 8 * 8 * 3, bytes = 4 * (2 * 5 * 8 * 8 + 2 * 8 * 8 * 3 + 3 * 5);
    EXPECT_DOUBLE_EQ(EstimateNs(*(*module)->entry()->root()), 2 * products + 0.04 * bytes) << labels;
  }
}

}  // namespace
}  // namespace xlad::compiler
