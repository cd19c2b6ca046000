// Estimates of the bytes that kernels move and of their times, counted by hand.
#include "compiler/analysis/kernel_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// In every layout, an operation of a convolution in blocks takes twice as long as an operation of a dot.
TEST(KernelCost, LargeProductsCostTheTimeOfBlocks) {
  const auto estimate = [](absl::string_view shapes, absl::string_view operation) {
    const auto module =
        hlo::ParseText(absl::StrCat("HloModule m\nENTRY e {\n", shapes, "  ROOT r = ", operation, "\n}\n"));
    EXPECT_TRUE(module.ok()) << module.status();
    const hlo::Instruction& root = *(*module)->entry()->root();
    return std::pair(EstimateNs(root), WantedTiles(root));
  };
  const auto dot = [&](const std::string& type, int64_t rows, int64_t size) {
    const std::string columns = absl::StrCat(size, "] ");
    return estimate(absl::StrCat("  x = ", type, "[", rows, ",", columns, "parameter(0)\n  y = ", type, "[", size, ",",
                                 columns, "parameter(1)\n"),
                    absl::StrCat(type, "[", rows, ",", columns,
                                 "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"));
  };
  // A dot of this size is not divided among threads, because it takes less than a microsecond.
  EXPECT_DOUBLE_EQ(dot("f64", 24, 24).first, 0.025 * 2 * 24 * 24 * 24 + 0.04 * 8 * 3 * 24 * 24);
  EXPECT_EQ(dot("f64", 24, 24).second, 1);
  EXPECT_DOUBLE_EQ(dot("s32", 24, 24).first, 0.0125 * 2 * 24 * 24 * 24 + 0.04 * 4 * 3 * 24 * 24);
  EXPECT_DOUBLE_EQ(dot("c64", 24, 24).first, 0.0125 * 8 * 24 * 24 * 24 + 0.04 * 8 * 3 * 24 * 24);
  EXPECT_GT(dot("f64", 256, 256).second, 100);
  // Few rows are not computed in blocks.
  EXPECT_DOUBLE_EQ(dot("f64", 7, 24).first, 2 * 7 * 24 * 24 + 0.04 * 8 * 3 * 7 * 24);
  for (const auto& [result, labels] : {std::pair("f64[2,8,8,5]", "b01f_01io->b01f"),
                                       {"f64[2,5,8,8]", "b01f_01io->bf01"},
                                       {"f64[5,8,8,2]", "b01f_01io->f01b"}}) {
    const double products = 2 * 5 * 8 * 8 * 4, bytes = 8 * (2 * 5 * 8 * 8 + 2 * 8 * 8 * 4 + 4 * 5);
    const auto found = estimate("  x = f64[2,8,8,4] parameter(0)\n  k = f64[1,1,4,5] parameter(1)\n",
                                absl::StrCat(result, " convolution(x, k), window={size=1x1}, dim_labels=", labels));
    EXPECT_DOUBLE_EQ(found.first, 0.05 * 2 * products + 0.04 * bytes) << labels;
  }
}

// A dot with few rows or columns is worth blocks, with two exceptions: if its columns are neighbors in memory, rows of
// the right operand are read as vectors; if its depth has neighbors in both operands, each sum is computed with
// vectors.
TEST(KernelCost, ThinProductsAreWorthBlocks) {
  // The names of dimensions: `m`, `n` and `k`.
  const auto is_worth = [](int64_t rows, int64_t columns, int64_t depth, const std::string& lhs,
                           const std::string& rhs) {
    const auto sizes = [&](const std::string& dims) {
      const auto size = [&](char dim) { return dim == 'm' ? rows : dim == 'n' ? columns : depth; };
      return absl::StrCat("f64[", size(dims[0]), ",", size(dims[1]), "]");
    };
    const auto module = hlo::ParseText(absl::StrCat(
        "HloModule m\nENTRY e {\n  x = ", sizes(lhs), " parameter(0)\n  y = ", sizes(rhs), " parameter(1)\n  ROOT r = ",
        sizes("mn"), " dot(x, y), lhs_contracting_dims={", lhs.find('k'), "}, rhs_contracting_dims={", rhs.find('k'),
        "}\n}\n"));
    EXPECT_TRUE(module.ok()) << module.status();
    return IsWorthBlocks(*(*module)->entry()->root());
  };
  for (const int64_t few : {1, 2, 4}) {
    EXPECT_EQ(is_worth(64, few, 64, "mk", "kn"), few > 1) << few;
    EXPECT_TRUE(is_worth(64, few, 64, "km", "kn")) << few;
    EXPECT_TRUE(is_worth(64, few, 64, "km", "nk")) << few;
    EXPECT_EQ(is_worth(few, 64, 64, "km", "nk"), few > 1) << few;
    EXPECT_FALSE(is_worth(64, few, 64, "mk", "nk")) << few;
    EXPECT_FALSE(is_worth(few, 64, 64, "mk", "nk")) << few;
    EXPECT_FALSE(is_worth(few, 64, 64, "km", "kn")) << few;
    EXPECT_FALSE(is_worth(few, few, 64, "km", "kn")) << few;
    EXPECT_FALSE(is_worth(64, few, 4, "km", "kn")) << few;
  }
}

TEST(KernelCost, DepthwiseConvolutionsHaveVectorsOfGroups) {
  const auto convolution = [](absl::string_view input, absl::string_view kernel, absl::string_view result,
                              absl::string_view attributes) {
    auto module = hlo::ParseText(absl::StrCat("HloModule m\nENTRY e {\n  x = f32[", input, "] parameter(0)\n  y = f32[",
                                              kernel, "] parameter(1)\n  ROOT r = f32[", result,
                                              "] convolution(x, y), ", attributes, "\n}\n"));
    EXPECT_TRUE(module.ok()) << module.status();
    return *std::move(module);
  };
  const auto depthwise = convolution("2,6,32", "3,1,32", "2,4,32",
                                     "window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=32");
  const auto gradient = convolution("2,6,32", "2,4,32", "3,1,32",
                                    "window={size=4}, dim_labels=f0b_i0o->0bf, batch_group_count=32");
  const auto channels_first = convolution("2,32,6", "32,1,3", "2,32,4",
                                          "window={size=3}, dim_labels=bf0_oi0->bf0, feature_group_count=32");
  const auto two_in_a_group = convolution("2,6,32", "3,2,32", "2,4,32",
                                          "window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=16");
  EXPECT_TRUE(HasVectorsOfGroups(*depthwise->entry()->root()));
  EXPECT_TRUE(HasVectorsOfGroups(*gradient->entry()->root()));
  EXPECT_FALSE(HasVectorsOfGroups(*channels_first->entry()->root()));
  EXPECT_FALSE(HasVectorsOfGroups(*two_in_a_group->entry()->root()));
  // At most as many elements of the input are counted as the result has.
  const double products = 2 * 4 * 32 * 3, bytes = 4 * (2 * 4 * 32 + 3 * 32 + 2 * 4 * 32);
  EXPECT_DOUBLE_EQ(EstimateNs(*depthwise->entry()->root()), 0.1 * products + 0.04 * bytes);
}

// The gradient of pooling is computed for vectors of channels if they are the last dimension.
TEST(KernelCost, GradientsOfPoolingCostLessWithChannelsLast) {
  const auto estimate = [](absl::string_view operand, absl::string_view source, absl::string_view window) {
    const auto module = hlo::ParseText(absl::StrCat(
        "HloModule m\nge {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = pred[] compare(a, b), "
        "direction=GE\n}\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"
        "ENTRY e {\n  x = f32[",
        operand, "] parameter(0)\n  s = f32[", source, "] parameter(1)\n  z = f32[] constant(0)\n  ROOT r = f32[",
        operand, "] select-and-scatter(x, s, z), window={", window, "}, select=ge, scatter=add\n}\n"));
    EXPECT_TRUE(module.ok()) << module.status();
    return EstimateNs(*(*module)->entry()->root());
  };
  const double selections = 2 * 3 * 4 * 16 * 4, bytes = 4 * (2 * 2 * 6 * 8 * 16 + 2 * 3 * 4 * 16 + 1);
  EXPECT_DOUBLE_EQ(estimate("2,6,8,16", "2,3,4,16", "size=1x2x2x1 stride=1x2x2x1"), 0.3 * selections + 0.04 * bytes);
  EXPECT_DOUBLE_EQ(estimate("2,16,6,8", "2,16,3,4", "size=1x1x2x2 stride=1x1x2x2"), 2 * selections + 0.04 * bytes);
}

// Each row is multiplied with the matrix of its own group, however many groups there are.
TEST(KernelCost, RaggedDotsDoNotCostMoreForMoreGroups) {
  for (const int64_t groups : {1, 8}) {
    const auto module = hlo::ParseText(absl::StrCat(
        "HloModule m\nENTRY e {\n  x = f32[64,32] parameter(0)\n  y = f32[64,16] parameter(1)\n  s = s32[", groups,
        "] parameter(2)\n  ROOT r = f32[", groups, ",32,16] ragged-dot(x, y, s), lhs_contracting_dims={0}, ",
        "rhs_contracting_dims={0}, lhs_ragged_dims={0}\n}\n"));
    ASSERT_TRUE(module.ok()) << module.status();
    // At most as many elements of each operand are counted as the result has.
    const int64_t result = groups * 32 * 16;
    const auto bytes = static_cast<double>(
        4 * (std::min<int64_t>(64 * 32, result) + std::min<int64_t>(64 * 16, result) + groups + result));
    EXPECT_DOUBLE_EQ(EstimateNs(*(*module)->entry()->root()), 0.0125 * 2 * 64 * 32 * 16 + 0.04 * bytes) << groups;
  }
}

}  // namespace
}  // namespace xlad::compiler
