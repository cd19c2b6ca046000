// Counts of work and of elements, compared with numbers computed by hand.
#include "hlo/analysis/counts.h"

#include "gtest/gtest.h"
#include "hlo/analysis/leaves.h"
#include "hlo/text/text.h"

namespace xlad::hlo {
namespace {

TEST(Counts, OfDotsConvolutionsAndWindows) {
  const auto module = ParseText(R"(HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[2,5,6] parameter(0)
  y = f32[5,6,7] parameter(1)
  dot = f32[2,7] dot(x, y), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}
  kernel = f32[3,6,0] parameter(2)
  convolution = f32[2,3,0] convolution(x, kernel), window={size=3}, dim_labels=b0f_0io->b0f
  wide = f32[3,6,8] parameter(3)
  plain = f32[2,3,8] convolution(x, wide), window={size=3}, dim_labels=b0f_0io->b0f
  zero = f32[] constant(0)
  ROOT sums = f32[2,4,3] reduce-window(x, zero), window={size=1x2x4}, to_apply=add })");
  ASSERT_TRUE(module.ok()) << module.status();
  const auto find = [&](absl::string_view name) -> const Instruction& {
    for (const auto& instruction : (*module)->entry()->instructions()) {
      if (instruction->name() == name) return *instruction;
    }
    return *(*module)->entry()->root();
  };
  EXPECT_EQ(ContractedElements(find("dot")), 30);
  EXPECT_EQ(DotFlops(find("dot")), 2 * 30 * 14);
  EXPECT_EQ(ConvolutionFlops(find("plain")), 2 * 3 * 6 * (2 * 3 * 8));
  EXPECT_EQ(ConvolutionFlops(find("convolution")), 0);  // There are no output features.
  EXPECT_EQ(WindowElements(find("sums")), 8);
  EXPECT_EQ(ContractedElements(find("x")), 1);
  EXPECT_EQ(WindowElements(find("x")), 1);
}

TEST(Counts, OfTheElementsOfAShape) {
  const Shape array(ElementType::kF32, {3, 4});
  const Shape tuple =
      Shape::Tuple({array, Shape::Marker(Shape::Kind::kToken), Shape::Tuple({Shape(ElementType::kS8, {5}), array})});
  EXPECT_EQ(ElementsOfLargestLeaf(tuple), 12);
  EXPECT_EQ(ElementsOfArrays(tuple), 29);
  EXPECT_EQ(ElementsOfLargestLeaf(Shape()), 0);
  EXPECT_EQ(ElementsOfArrays(Shape()), 0);
}

}  // namespace
}  // namespace xlad::hlo
