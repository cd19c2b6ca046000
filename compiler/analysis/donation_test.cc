// Which parameters are donated, and what the errors of wrong aliases say.
#include "compiler/analysis/donation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

using ::testing::HasSubstr;

// A module with parameters p0 = (f32[4], token[]) and p1 = f32[4], and results (f32[4], f32[4], (f32[8])).
std::unique_ptr<Module> ModuleWith(const std::string& attribute) {
  auto module = hlo::ParseText(absl::StrCat("HloModule m, ", attribute, R"(
ENTRY e {
  p0 = (f32[4], token[]) parameter(0)
  p1 = f32[4] parameter(1)
  a = f32[4] get-tuple-element(p0), index=0
  b = f32[4] negate(a)
  c = f32[4] add(b, p1)
  d = f32[8] concatenate(a, p1), dimensions={0}
  t = (f32[8]) tuple(d)
  ROOT r = (f32[4], f32[4], (f32[8])) tuple(b, c, t)
})"));
  EXPECT_TRUE(module.ok()) << module.status();
  return *std::move(module);
}

absl::StatusOr<Donation> DonationWith(const std::string& attribute) { return DonationOf(*ModuleWith(attribute)); }

std::string ErrorWith(const std::string& attribute) { return std::string(DonationWith(attribute).status().message()); }

// The error of an alias for a parameter that the text of a module cannot name.
std::string ErrorOf(int64_t parameter, const Dims& index) {
  const std::unique_ptr<Module> module = ModuleWith("input_output_alias={ {0}: (1, {}, may-alias) }");
  module->input_output_alias[0].parameter = parameter;
  module->input_output_alias[0].parameter_index = index;
  return std::string(DonationOf(*module).status().message());
}

TEST(Donation, AliasesAndDonors) {
  const auto aliased = DonationWith("input_output_alias={ {1}: (0, {0}, must-alias), {2,0}: (1, {}, may-alias) }");
  ASSERT_TRUE(aliased.ok()) << aliased.status();
  EXPECT_THAT(aliased->parameter_is_donated, testing::ElementsAre(true, false, true));
  EXPECT_THAT(aliased->result_to_parameter, testing::ElementsAre(-1, 0, -1));  // f32[8] does not use f32[4].
  const auto donated = DonationWith("buffer_donor={ (1, {}) }");
  ASSERT_TRUE(donated.ok()) << donated.status();
  EXPECT_THAT(donated->parameter_is_donated, testing::ElementsAre(false, false, true));
}

TEST(Donation, ErrorsNameTheArrayAndTheCause) {
  EXPECT_EQ(ErrorWith("buffer_donor={ (0, {}) }"),
            "buffer_donor: found parameter 0 {}, which is (f32[4], token[]), expected an array of the entry's 2 "
            "parameters");
  EXPECT_THAT(ErrorWith("buffer_donor={ (0, {1}) }"), HasSubstr("found parameter 0 {1}, which is token[]"));
  EXPECT_THAT(ErrorOf(7, {}), HasSubstr("found parameter 7 {}, which does not exist"));
  EXPECT_THAT(ErrorOf(-1, {}), HasSubstr("found parameter -1 {}, which does not exist"));
  EXPECT_THAT(ErrorOf(0, {5}), HasSubstr("input_output_alias: found parameter 0 {5}, which does not exist"));
  EXPECT_THAT(ErrorOf(0, {0, 0}), HasSubstr("found parameter 0 {0,0}, which does not exist"));
  EXPECT_THAT(ErrorWith("input_output_alias={ {2}: (1, {}, may-alias) }"),
              HasSubstr("of result {2} and parameter 1 {}: found a result which is (f32[8]), expected an array"));
  EXPECT_THAT(ErrorWith("input_output_alias={ {2,0}: (1, {}, must-alias) }"),
              HasSubstr("of result {2,0} and parameter 1 {}: found the shapes f32[8] and f32[4]"));
}

// A second alias is an error even if the first one is not followed because its shapes differ.
TEST(Donation, ArraysHaveOneAlias) {
  EXPECT_THAT(ErrorWith("input_output_alias={ {0}: (1, {}, may-alias), {1}: (1, {}, may-alias) }"),
              HasSubstr("of result {1} and parameter 1 {}: found another alias of this parameter"));
  EXPECT_THAT(ErrorWith("input_output_alias={ {2,0}: (1, {}, may-alias), {1}: (1, {}, may-alias) }"),
              HasSubstr("of result {1} and parameter 1 {}: found another alias of this parameter"));
  EXPECT_THAT(ErrorWith("input_output_alias={ {0}: (0, {0}, may-alias), {0}: (1, {}, may-alias) }"),
              HasSubstr("of result {0} and parameter 1 {}: found another alias of this result"));
  EXPECT_THAT(ErrorWith("input_output_alias={ {2,0}: (0, {0}, may-alias), {2,0}: (1, {}, may-alias) }"),
              HasSubstr("of result {2,0} and parameter 1 {}: found another alias of this result"));
}

}  // namespace
}  // namespace xlad::compiler
