// ReadModule detects the format of a program from its bytes.
#include "hlo/read/read.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/text/text.h"
#include "hlo/wire/proto.h"

namespace xlad::hlo {
namespace {

using ::testing::HasSubstr;

std::string Error(absl::string_view bytes) { return std::string(ReadModule(bytes).status().message()); }

TEST(Read, ReadsTextAndProto) {
  const absl::StatusOr<std::unique_ptr<Module>> text = ReadModule("\n  %x = f32[2]{0} negate(f32[2]{0} %y)");
  ASSERT_TRUE(text.ok()) << text.status();
  for (const int length : {1, 33, 35, 127, 128, 600}) {  // Some of these, as bytes, are text ('!', '#').
    (*text)->set_name(std::string(static_cast<size_t>(length), 'n'));
    const absl::StatusOr<std::unique_ptr<Module>> proto = ReadModule(*SerializeProto(**text));
    ASSERT_TRUE(proto.ok()) << proto.status();
    EXPECT_EQ(PrintText(**proto), PrintText(**text));
  }
}

TEST(Read, SkipsAByteOrderMark) {
  EXPECT_TRUE(ReadModule("\xef\xbb\xbf"
                         "f32[2] negate(f32[2] x)")
                  .ok());
}

TEST(Read, NamesFormatsThatItCannotRead) {
  EXPECT_THAT(Error("ML\xefR\x01StableHLO"), HasSubstr("found MLIR bytecode (a StableHLO artifact), expected HLO"));
  EXPECT_THAT(Error("module @jit_f attributes {} {\n"), HasSubstr("found MLIR text, expected HLO text"));
  EXPECT_THAT(Error("#loc = loc(unknown)\nmodule {"), HasSubstr("found MLIR text"));
  EXPECT_THAT(Error("// -----\n!t1 = tensor<2xf32>\n"), HasSubstr("found MLIR text"));
  EXPECT_THAT(Error("#map.a_1 = affine_map<(d0) -> (d0)>\n"), HasSubstr("found MLIR text"));
  EXPECT_THAT(Error("func.func @main() {"), HasSubstr("found MLIR text"));
  EXPECT_THAT(Error("\"builtin.module\"() ({"), HasSubstr("found MLIR text"));
  EXPECT_THAT(Error("\x1f\x8b\x08"), HasSubstr("found a file that gzip has compressed"));
  EXPECT_THAT(Error("\x28\xb5\x2f\xfd\x04"), HasSubstr("found a file that zstd has compressed"));
}

TEST(Read, ReportsBytesThatAreNotAModule) {
  EXPECT_THAT(Error(""), HasSubstr("found an empty file"));
  for (const char* text : {"# A program\n\nThis text", "#!/bin/bash\nA=1\n", "#include <new>\n", "# a = b",
                           "{\"a\": 1}", "\"\"\"A script.\"\"\"\n", "<html>", "[table]"}) {
    EXPECT_THAT(Error(text), HasSubstr("found text that is not a program, expected HLO text or an HloModuleProto"));
  }
  EXPECT_EQ(Error("// A comment"),
            "1:13: found the end of the text, expected HloModule, a computation or an instruction");
  EXPECT_EQ(Error("// A program\n/* HloModule m"), "2:1: found a comment without end, expected */");
  EXPECT_EQ(Error("hello world"), "1:1: found \"hello\", expected HloModule, a computation or an instruction");
  EXPECT_THAT(Error("\x7f"
                    "ELF\x02\x01\x01"),
              HasSubstr("not an HloModuleProto"));
  EXPECT_THAT(Error(absl::string_view("\0\0\0\0", 4)), HasSubstr("not an HloModuleProto"));
}

TEST(Read, Verifies) {
  EXPECT_THAT(Error("f32[3] add(f32[2] x, f32[2] y)"), HasSubstr("["));
  EXPECT_THAT(Error("f32[5] reshape(f32[2,3] x)"), HasSubstr("["));
}

}  // namespace
}  // namespace xlad::hlo
