// Children that fail in different ways: the error says how, and quotes the child's output.
#include "service/build_queue/build_child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/testing/test_folder.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class BuildChildTest : public ::testing::Test {
 protected:
  // Runs a shell script instead of the program.
  absl::StatusOr<BuildResponse> Run(const std::string& script, const ChildLimits& limits = {},
                                    std::optional<std::string>* not_isolated = nullptr) {
    const std::string path = InFolder("build_child");
    EXPECT_TRUE(RealFileSystem().WriteAtomically(path, absl::StrCat("#!/bin/sh\n", script, "\n")).ok());
    EXPECT_EQ(chmod(path.c_str(), 0700), 0);
    BuildPool pool({path});
    return BuildInChild(pool, BuildRequest(), limits, not_isolated);
  }
  std::string InFolder(const std::string& name) const { return JoinPath(folder_.path(), name); }

  const TestFolder folder_;
};

TEST_F(BuildChildTest, TheResponseOfTheChildIsReturned) {
  BuildResponse response;
  response.set_executable("code");
  const std::string file = InFolder("response");
  ASSERT_TRUE(RealFileSystem().WriteAtomically(file, response.SerializeAsString()).ok());
  const auto built = Run(absl::StrCat("test \"$1\" = __build && cat '", file, "'"));
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->executable(), "code");
}

TEST_F(BuildChildTest, TheInputNamesTheFolderOfObjects) {
  const std::string input = InFolder("input"), program = InFolder("builder");
  ASSERT_TRUE(RealFileSystem().WriteAtomically(program, absl::StrCat("#!/bin/sh\ncat > '", input, "'\n")).ok());
  ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  BuildPool pool({program});
  BuildRequest request;
  request.set_program("HloModule m");
  const std::string nul(1, '\0');
  ASSERT_TRUE(BuildInChild(pool, request, {}).ok());
  EXPECT_EQ(*RealFileSystem().Read(input), nul + nul + request.SerializeAsString());
  const storage::EntryFolder objects(&RealFileSystem(), {InFolder("kernels"), "7"});
  ASSERT_TRUE(BuildInChild(pool, request, {}, nullptr, &objects).ok());
  EXPECT_EQ(*RealFileSystem().Read(input), InFolder("kernels") + nul + "7" + nul + request.SerializeAsString());
}

TEST_F(BuildChildTest, AnErrorInTheResponseIsTheErrorOfTheBuild) {
  BuildResponse response;
  response.set_error("3:7: unknown opcode");
  response.set_error_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
  const std::string file = InFolder("error");
  ASSERT_TRUE(RealFileSystem().WriteAtomically(file, response.SerializeAsString()).ok());
  EXPECT_EQ(Run(absl::StrCat("cat '", file, "'")).status(), absl::InvalidArgumentError("3:7: unknown opcode"));
}

// A program that has taken over the process of its build can send any response.
TEST_F(BuildChildTest, AnErrorIsAnErrorWithAnyCode) {
  const std::string file = InFolder("code");
  for (const int code : {0, 17, -1, 1 << 30}) {
    BuildResponse response;
    response.set_error("bad");
    response.set_error_code(code);
    ASSERT_TRUE(RealFileSystem().WriteAtomically(file, response.SerializeAsString()).ok());
    const absl::Status status = Run(absl::StrCat("cat '", file, "'")).status();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.message(), "bad");
  }
}

// The response may be stored in a cache, so it must not say how it was made.
TEST_F(BuildChildTest, TheReasonWhyABuildWasNotIsolatedIsNotInItsResponse) {
  BuildResponse response;
  response.set_not_isolated("Landlock: Operation not supported");
  for (const char* error : {"", "3:7: unknown opcode"}) {
    response.set_error(error);
    response.set_error_code(error[0] == '\0' ? 0 : static_cast<int>(absl::StatusCode::kInvalidArgument));
    const std::string file = InFolder("open");
    ASSERT_TRUE(RealFileSystem().WriteAtomically(file, response.SerializeAsString()).ok());
    std::optional<std::string> not_isolated;
    const auto built = Run(absl::StrCat("cat '", file, "'"), {}, &not_isolated);
    EXPECT_EQ(built.ok(), response.error().empty());
    EXPECT_EQ(not_isolated, "Landlock: Operation not supported");
    if (built.ok()) EXPECT_EQ(built->not_isolated(), "");
  }
}

TEST_F(BuildChildTest, AnErrorOfTheProgramIsNeverUnavailable) {
  BuildResponse response;
  response.set_error("no route between the chips");
  response.set_error_code(static_cast<int>(absl::StatusCode::kUnavailable));
  const std::string file = InFolder("open");
  ASSERT_TRUE(RealFileSystem().WriteAtomically(file, response.SerializeAsString()).ok());
  EXPECT_EQ(Run(absl::StrCat("cat '", file, "'")).status(), absl::InternalError("no route between the chips"));
}

TEST_F(BuildChildTest, ExitCodesAndSignalsAreNamed) {
  EXPECT_EQ(Run("exit 3").status(), absl::InternalError("the build process ended with exit code 3"));
  EXPECT_EQ(Run("echo 'LLVM ERROR: bad' >&2; exit 1").status(),
            absl::InternalError("the build process ended with exit code 1; its output ends with: LLVM ERROR: bad"));
  const absl::Status killed = Run("kill -SEGV $$").status();
  EXPECT_EQ(killed.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(killed.message(), StartsWith("the build process died of signal 11 (Segmentation fault)"));
}

TEST_F(BuildChildTest, LongOutputIsCutAtItsBeginning) {
  const absl::Status status = Run("i=0; while [ $i -lt 1000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("line 999"));
  EXPECT_LT(status.message().size(), 2200u);
}

TEST_F(BuildChildTest, LackOfMemoryIsNamedOnlyWithALimit) {
  const std::string script = "echo std::bad_alloc >&2; exit 1";
  EXPECT_EQ(Run(script).status().code(), absl::StatusCode::kInternal);
  const absl::Status limited = Run(script, {.memory_bytes = int64_t{300} << 20}).status();
  EXPECT_EQ(limited.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(limited.message()), HasSubstr("300 MiB"));
}

TEST_F(BuildChildTest, OtherOutputIsRefused) {
  EXPECT_EQ(Run("echo hello").status(),
            absl::InternalError("the build process answered 6 bytes that cannot be parsed as a BuildResponse"));
}

TEST_F(BuildChildTest, AMissingProgramIsAnError) {
  BuildPool pool({"/nowhere/xlad"});
  EXPECT_FALSE(BuildInChild(pool, BuildRequest(), {}).ok());
}

}  // namespace
}  // namespace xlad::service
