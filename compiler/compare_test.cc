// The messages about differences between results.
#include "compiler/testing/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xlad::compiler {
namespace {

using tensor::Array;
using ::testing::HasSubstr;

Array Floats(const std::vector<float>& values) {
  return Array::FromValues<float>(tensor::ElementType::kF32, {std::ssize(values)}, values);
}

// The tolerance in the message is the one that decides.
TEST(Compare, MessagesNameTheToleranceThatIsApplied) {
  const Exactness exactness{Agreement::kNumbers, 0.25};
  EXPECT_TRUE(CompareArrays(Floats({1, 3}), Floats({1, 2}), exactness).ok());
  const absl::Status status = CompareArrays(Floats({1, 3.5}), Floats({1, 2}), exactness);
  EXPECT_THAT(std::string(status.message()), HasSubstr("element 1 of f32[2]: found 3.5"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("within 1"));
}

TEST(Compare, MessagesNameTheListOfTheWrongLength) {
  const Array x = Floats({1});
  EXPECT_THAT(std::string(CompareResults({x, x}, {x}, {{}, {}}).message()),
              HasSubstr("found 2 results, expected 1, with 2 tolerances"));
  EXPECT_THAT(std::string(CompareResults({x, x}, {x, x}, {{}}).message()),
              HasSubstr("found 2 results, expected 2, with 1 tolerances, expected one for each"));
}

}  // namespace
}  // namespace xlad::compiler
