// The numbers of leaves in pairs that may share memory.
#include "compiler/analysis/in_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::vector<std::pair<int, int>> PairsOf(const std::string& text) {
  const auto module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return MayShareMemory(*(*module)->entry()->root());
}

// The leaves of an operand that is a tuple count, although none of them is shared.
TEST(MayShareMemory, NumbersLeavesAcrossTupleOperands) {
  EXPECT_THAT(PairsOf(R"(HloModule m
fused {
  t = (f32[64], (f32[64], f32[8])) parameter(0)
  x = f32[64] parameter(1)
  a = f32[64] get-tuple-element(t), index=0
  r = f32[64] reverse(a), dimensions={0}
  y = f32[64] add(x, r)
  n = f32[64] negate(y)
  ROOT o = (f32[64], f32[64]) tuple(y, n)
}
ENTRY e {
  t = (f32[64], (f32[64], f32[8])) parameter(0)
  x = f32[64] parameter(1)
  ROOT f = (f32[64], f32[64]) fusion(t, x), kind=kLoop, calls=fused
})"),
              UnorderedElementsAre(Pair(0, 3), Pair(1, 3)));
}

TEST(MayShareMemory, OperandsReadElsewhereAreNotShared) {
  EXPECT_THAT(PairsOf(R"(HloModule m
fused {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  r = f32[64] reverse(y), dimensions={0}
  ROOT s = f32[64] add(x, r)
}
ENTRY e {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  ROOT f = f32[64] fusion(x, y), kind=kLoop, calls=fused
})"),
              UnorderedElementsAre(Pair(0, 0)));
}

}  // namespace
}  // namespace xlad::compiler
