#include "sharding/partition/ops/reducer_laws.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "hlo/text/text.h"
#include "sharding/testing/sum_that_starts_again.h"

namespace xlad::sharding {
namespace {

// Returns the laws of a reducer of s32 with the initial value 0. `body` computes its result from a and b.
ReducerLaws LawsOfIntegers(absl::string_view body) {
  const auto module = hlo::ParseText(absl::StrCat(R"(HloModule m
reducer {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  )",
                                                  body, R"(
}
ENTRY main {
  x = s32[8] parameter(0)
  zero = s32[] constant(0)
  ROOT r = s32[] reduce(x, zero), dimensions={0}, to_apply=reducer
})"));
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? LawsOf(*(*module)->entry()->root()) : ReducerLaws();
}

TEST(ReducerLaws, OfIntegers) {
  const ReducerLaws sum = LawsOfIntegers("ROOT c = s32[] add(a, b)");
  EXPECT_TRUE(sum.combines_parts && sum.commutes);
  EXPECT_FALSE(LawsOfIntegers("ROOT c = s32[] subtract(a, b)").combines_parts);
  // The first 96 samples do not show that this sum is not associative.
  const std::string starts_again = absl::StrReplaceAll(kSumThatStartsAgain, {{"{-10, -8}", "{-6, -4}"}});
  EXPECT_FALSE(LawsOfIntegers(starts_again).combines_parts);
}

}  // namespace
}  // namespace xlad::sharding
