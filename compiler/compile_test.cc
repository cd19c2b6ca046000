// Whole compiles: executables of the example steps, errors, and the compile child.
#include "compiler/compile.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file_system.h"
#include "compiler/report.h"
#include "hlo/proto.h"
#include "hlo/text.h"

namespace xlad::compiler {
namespace {

CompileRequest RequestFor(const std::string& text) {
  auto module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  CompileRequest request;
  auto bytes = hlo::SerializeProto(**module);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  request.set_partitioned_module(*bytes);
  return request;
}

constexpr char kSmall[] = R"(HloModule small, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e {
  p = f32[8,8] parameter(0)
  x = f32[4,8] parameter(1)
  d = f32[4,8] dot(x, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[4,8] tanh(d)
  g = f32[8,8] dot(x, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  q = f32[8,8] subtract(p, g)
  ROOT r = (f32[8,8], f32[4,8]) tuple(q, t)
})";

TEST(Compile, FillsTheExecutable) {
  auto executable = Compile(RequestFor(kSmall));
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ(executable->name(), "small");
  EXPECT_EQ(executable->kernel_abi_version(), 1);
  ASSERT_EQ(executable->parameters_size(), 2);
  EXPECT_TRUE(executable->parameters(0).donated());
  EXPECT_FALSE(executable->parameters(1).donated());
  ASSERT_EQ(executable->results_size(), 2);
  EXPECT_EQ(executable->results(0).buffer().allocation(), executable->parameters(0).buffer().allocation());
  EXPECT_EQ(executable->library_ops_size(), 2);
  EXPECT_EQ(executable->object_code().substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_EQ(executable->program_hash().size(), 64u);
  EXPECT_FALSE(executable->target().cpu().empty());
  EXPECT_NE(StepsText(*executable).find("dot 4x8 * 8x8"), std::string::npos) << StepsText(*executable);
  EXPECT_NE(BuffersText(*executable).find("donated"), std::string::npos);
}

TEST(Compile, IsDeterministic) {
  auto a = Compile(RequestFor(kSmall));
  auto b = Compile(RequestFor(kSmall));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->SerializeAsString(), b->SerializeAsString());
}

TEST(Compile, RefusesWhatItCannotDo) {
  CompileRequest request;
  request.set_partitioned_module("no module at all");
  EXPECT_FALSE(Compile(request).ok());
  request = RequestFor(kSmall);
  request.add_parameters();
  EXPECT_EQ(Compile(request).status().message(), "compile request: found 1 parameters, expected 2, the entry's");
  auto custom = Compile(RequestFor(R"(HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  ROOT c = f32[4] custom-call(x), custom_call_target="nobody.knows"
})"));
  EXPECT_EQ(custom.status().code(), absl::StatusCode::kUnimplemented) << custom.status();
  EXPECT_NE(custom.status().message().find("%c (custom-call)"), std::string::npos) << custom.status();
}

TEST(CompileChild, EndsBecomeErrors) {
  const CompileRequest request = RequestFor(kSmall);
  auto failing = CompileInChild(request, "/bin/false", {});
  EXPECT_EQ(failing.status().message(), "compiling: the compile process exited with code 1");
  auto missing = CompileInChild(request, "/nowhere/xlad", {});
  EXPECT_FALSE(missing.ok());
  auto nonsense = CompileInChild(request, "/bin/echo", {});
  EXPECT_EQ(nonsense.status().code(), absl::StatusCode::kInternal);
}

class ExampleCompiles : public testing::TestWithParam<const char*> {};

TEST_P(ExampleCompiles, ToCode) {
  const char* folder = std::getenv("XLAD_EXAMPLES");
  if (folder == nullptr) GTEST_SKIP() << "XLAD_EXAMPLES is not set";
  auto bytes = RealFileSystem().Read(JoinPath(folder, absl::StrCat(GetParam(), "/step.single.hlo.pb")));
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  CompileRequest request;
  request.set_partitioned_module(*bytes);
  auto result = CompileWithListings(request, {}, false);
  ASSERT_TRUE(result.ok()) << result.status();
  if (std::getenv("XLAD_DUMP") != nullptr) {
    std::cout << StepsText(result->executable) << TimesText(result->times) << result->executable.object_code().size()
              << " bytes of code\n";
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExampleCompiles,
                         testing::Values("digits_mlp", "dropout_rng", "nano_gpt", "nano_gpt_bf16", "cnn", "lstm", "moe",
                                         "ring_shard_map"));

}  // namespace
}  // namespace xlad::compiler
