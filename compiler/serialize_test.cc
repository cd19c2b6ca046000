#include "compiler/serialize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xlad::compiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Executable WithConstant(int64_t bytes) {
  Executable executable;
  executable.set_name("step");
  executable.add_allocations()->set_blob(std::string(static_cast<size_t>(bytes), 'c'));
  executable.set_object_code("object");
  return executable;
}

TEST(SerializeExecutable, AcceptsExactlyTheLimit) {
  for (const int64_t constant : {0, 1, 127, 128, 20'000}) {
    const Executable executable = WithConstant(constant);
    const auto bytes = static_cast<int64_t>(executable.ByteSizeLong());
    const auto accepted = SerializeExecutable(executable, bytes);
    ASSERT_TRUE(accepted.ok()) << accepted.status();
    EXPECT_EQ(std::ssize(*accepted), bytes);
    EXPECT_EQ(SerializeExecutable(executable, bytes - 1).status().code(), absl::StatusCode::kResourceExhausted);
  }
}

TEST(SerializeExecutable, NamesTheParts) {
  EXPECT_THAT(std::string(SerializeExecutable(WithConstant(20'000), 10'000).status().message()),
              AllOf(HasSubstr("executable step"), HasSubstr("constants 20000"), HasSubstr("object code 6"),
                    HasSubstr("expected at most 10000")));
}

}  // namespace
}  // namespace xlad::compiler
