#include "compiler/analysis/same_code.h"

#include <gtest/gtest.h>

#include <vector>

#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

TEST(SameCode, ComparesConstantsAndShapesButNotNames) {
  auto module = hlo::ParseText(R"(HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  u = f32[2] parameter(2)
  two = s32[] constant(2)
  four = s32[] constant(4)
  d1 = f32[8] dynamic-update-slice(x, u, two)
  d2 = f32[8] dynamic-update-slice(y, u, two)
  d3 = f32[8] dynamic-update-slice(y, u, four)
  n1 = f32[8] negate(d1)
  n2 = f32[8] negate(d2)
  n3 = f32[2] negate(u)
  a = f32[8] abs(d3)
  ROOT t = (f32[8], f32[8], f32[2], f32[8]) tuple(n1, n2, n3, a)
})");
  ASSERT_TRUE(module.ok()) << module.status();
  auto at = [&](int64_t i) { return (*module)->entry()->root()->operand(i); };
  EXPECT_TRUE(SameCode(*at(0), *at(1)));
  EXPECT_EQ(CodeHash(*at(0)), CodeHash(*at(1)));
  EXPECT_FALSE(SameCode(*at(0), *at(2)));
  EXPECT_FALSE(SameCode(*at(0), *at(3)));
  EXPECT_TRUE(SameCode(*at(0)->operand(0), *at(1)->operand(0)));
  EXPECT_FALSE(SameCode(*at(1)->operand(0), *at(3)->operand(0)));
}

TEST(SameCode, RepeatedOperandsNeedDifferentCode) {
  auto module = hlo::ParseText(R"(HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  xx = f32[16] concatenate(x, x), dimensions={0}
  xy = f32[16] concatenate(x, y), dimensions={0}
  yy = f32[16] concatenate(y, y), dimensions={0}
  ROOT t = (f32[16], f32[16], f32[16]) tuple(xx, xy, yy)
})");
  ASSERT_TRUE(module.ok()) << module.status();
  auto at = [&](int64_t i) -> const hlo::Instruction& { return *(*module)->entry()->root()->operand(i); };
  EXPECT_FALSE(SameCode(at(0), at(1)));
  EXPECT_FALSE(SameCode(at(1), at(2)));
  EXPECT_TRUE(SameCode(at(0), at(2)));
}

TEST(SameCode, HashesCoverAttributesAndOperands) {
  auto module = hlo::ParseText(hlo::TestText("compiler/analysis/testdata/different_code.hlo"));
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<const hlo::Instruction*> made;
  for (const auto& instruction : (*module)->entry()->instructions()) {
    if (instruction->name()[0] == 'v') made.push_back(instruction.get());
  }
  ASSERT_EQ(made.size(), 54u);
  for (size_t a = 0; a < made.size(); ++a) {
    for (size_t b = 0; b < made.size(); ++b) {
      const bool same = a / 2 == b / 2;
      EXPECT_EQ(SameCode(*made[a], *made[b]), same) << made[a]->name() << " and " << made[b]->name();
      EXPECT_EQ(CodeHash(*made[a]) == CodeHash(*made[b]), same) << made[a]->name() << " and " << made[b]->name();
    }
  }
}

}  // namespace
}  // namespace xlad::compiler
