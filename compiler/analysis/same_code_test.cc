#include "compiler/analysis/same_code.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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

// Instructions that differ in one attribute, and one operand shape, have different code and different hashes; copies of
// them on other operands have the same.
TEST(SameCode, HashesCoverAttributesAndOperands) {
  const std::vector<std::string> different = {
      "f32[4] slice(X), slice={[0:4]}",
      "f32[4] slice(X), slice={[1:5]}",
      "f32[4] slice(X), slice={[2:10:2]}",
      "f32[4] slice(L), slice={[0:4]}",
      "f32[16] pad(X, s), padding=0_0",
      "f32[16] pad(X, s), padding=1_-1",
      "f32[16] pad(X, s), padding=-1_1",
      "pred[16] compare(X, X), direction=LT",
      "pred[16] compare(X, X), direction=LE",
      "pred[16] compare(X, X), direction=GT",
      "pred[16] compare(X, X), direction=LT, type=TOTALORDER",
      "pred[16] compare(X, Z), direction=LT",
      "f32[2] dynamic-slice(X, i), dynamic_slice_sizes={2}",
      "f32[3] dynamic-slice(X, i), dynamic_slice_sizes={3}",
      "f32[16] reduce-precision(X), exponent_bits=5, mantissa_bits=10",
      "f32[16] reduce-precision(X), exponent_bits=8, mantissa_bits=7",
      "f32[16] iota(), iota_dimension=0",
      "f32[4,4] dot(M, N), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
      "f32[4,4] dot(M, N), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
      "f32[4,4] dot(M, N), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
      "f32[16] reduce-window(X, s), window={size=3 pad=1_1}, to_apply=sum",
      "f32[16] reduce-window(X, s), window={size=3 pad=2_2 rhs_dilate=2}, to_apply=sum",
      "f32[] reduce(X, s), dimensions={0}, to_apply=sum",
      "f32[] reduce(L, s), dimensions={0}, to_apply=sum",
      "f32[] reduce(X, s), dimensions={0}, to_apply=most",
      "(f32[16], s32[16]) sort(X, I), dimensions={0}, to_apply=less",
      "(f32[16], s32[16]) sort(X, I), dimensions={0}, to_apply=more",
  };
  std::string text = R"(HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
less { a = f32[] parameter(0) b = f32[] parameter(1) k = s32[] parameter(2) l = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=LT }
more { a = f32[] parameter(0) b = f32[] parameter(1) k = s32[] parameter(2) l = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=GT }
ENTRY e {
  X0 = f32[16] parameter(0)
  X1 = f32[16] parameter(1)
  Z0 = f32[16] parameter(2)
  Z1 = f32[16] parameter(3)
  L0 = f32[20] parameter(4)
  L1 = f32[20] parameter(5)
  M0 = f32[4,4] parameter(6)
  M1 = f32[4,4] parameter(7)
  N0 = f32[4,4] parameter(8)
  N1 = f32[4,4] parameter(9)
  I0 = s32[16] parameter(10)
  I1 = s32[16] parameter(11)
  i = s32[] parameter(12)
  s = f32[] parameter(13)
)";
  for (size_t n = 0; n < different.size(); ++n) {
    for (const std::string copy : {"0", "1"}) {
      std::string line = different[n];
      for (const char operand : {'X', 'Z', 'L', 'M', 'N', 'I'}) {
        for (const char* after : {",", ")"}) {
          const std::string name(1, operand);
          line = absl::StrReplaceAll(line, {{absl::StrCat("(", name, after), absl::StrCat("(", name, copy, after)},
                                            {absl::StrCat(" ", name, after), absl::StrCat(" ", name, copy, after)}});
        }
      }
      absl::StrAppend(&text, "  v", n, "_", copy, " = ", line, "\n");
    }
  }
  auto module = hlo::ParseText(absl::StrCat(text, "  ROOT r = () tuple()\n}"));
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<const hlo::Instruction*> made;
  for (const auto& instruction : (*module)->entry()->instructions()) {
    if (instruction->name()[0] == 'v') made.push_back(instruction.get());
  }
  ASSERT_EQ(made.size(), 2 * different.size());
  for (size_t a = 0; a < made.size(); ++a) {
    for (size_t b = 0; b < made.size(); ++b) {
      const bool same = a / 2 == b / 2;
      EXPECT_EQ(SameCode(*made[a], *made[b]), same) << different[a / 2] << " and " << different[b / 2];
      EXPECT_EQ(CodeHash(*made[a]) == CodeHash(*made[b]), same) << different[a / 2] << " and " << different[b / 2];
    }
  }
}

}  // namespace
}  // namespace xlad::compiler
