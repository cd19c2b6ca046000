// Golden tests of passes. For most passes, testdata/PASS.hlo has cases of the form
//
//   // === name
//   HLO text
//   // --->
//   the entry (and fused computations) after the pass
//
// With XLAD_UPDATE_GOLDEN=1, the test writes the current results into the files. Review the difference before
// committing.
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "compiler/pipeline.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::compiler {
namespace {

constexpr char kFolder[] = "compiler/testdata";
constexpr char kCase[] = "// === ";
constexpr char kArrow[] = "// --->\n";

// The printed module without header, blank lines and reducers.
std::string Shown(const hlo::Module& module) {
  std::string text;
  bool keep = false;
  const std::string printed = hlo::PrintText(module);
  for (absl::string_view line : absl::StrSplit(printed, '\n')) {
    if (absl::StartsWith(line, "HloModule") || line.empty()) continue;
    const bool opens = !absl::StartsWith(line, " ") && !absl::StartsWith(line, "}");
    if (opens) keep = !absl::StartsWith(line, "%scalar_") && !absl::StartsWith(line, "%reducer");
    if (keep) absl::StrAppend(&text, line, "\n");
  }
  return text;
}

// A case of a golden file.
struct GoldenCase {
  std::string head;         // The name and the input.
  std::string name, input;  // The first line of the head, and the other lines.
  std::string wanted;       // Empty if the file has no result yet.
};

// Reads a case from the text that follows kCase.
GoldenCase ReadCase(const std::string& text) {
  const size_t arrow = text.find(kArrow);
  const std::string head = text.substr(0, arrow);
  const size_t line = head.find('\n');
  return {head, head.substr(0, line), head.substr(line + 1),
          arrow == std::string::npos ? "" : text.substr(arrow + sizeof(kArrow) - 1)};
}

std::string After(const std::string& pass, const std::string& input) {
  auto module = hlo::ParseText(input);
  if (!module.ok()) return absl::StrCat(module.status().ToString(), "\n");
  if (absl::Status status = hlo::Verify(**module); !status.ok()) return absl::StrCat(status.ToString(), "\n");
  PassContext context;
  context.devices = (*module)->num_partitions;
  context.attention = AttentionChoice::kAlways;
  PipelineOptions options;
  options.verify = true;
  options.only = {pass};
  if (pass != "normalize") options.only.push_back("eliminate-dead-code");
  if (absl::Status status = RunPipeline(**module, context, options, nullptr); !status.ok()) {
    return absl::StrCat(status.ToString(), "\n");
  }
  return Shown(**module);
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, Cases) {
  const std::string path = JoinPath(kFolder, absl::StrCat(GetParam(), ".hlo"));
  auto text = RealFileSystem().Read(path);
  ASSERT_TRUE(text.ok()) << text.status();
  const bool update = std::getenv("XLAD_UPDATE_GOLDEN") != nullptr;
  std::string updated;
  std::vector<std::string> cases = absl::StrSplit(*text, kCase);
  ASSERT_GT(cases.size(), 1u) << "the file has no case";
  updated = cases[0];
  for (size_t i = 1; i < cases.size(); ++i) {
    const GoldenCase golden = ReadCase(cases[i]);
    const std::string found = After(GetParam(), golden.input);
    const std::string wanted(absl::StripTrailingAsciiWhitespace(golden.wanted));
    if (!update) EXPECT_EQ(found, wanted + "\n") << golden.name;
    absl::StrAppend(&updated, kCase, absl::StripTrailingAsciiWhitespace(golden.head), "\n", kArrow, found,
                    i + 1 < cases.size() ? "\n" : "");
  }
  if (update) ASSERT_TRUE(RealFileSystem().WriteAtomically(path, updated).ok());
}

std::vector<std::string> Files() {
  std::vector<std::string> names;
  auto files = RealFileSystem().List(kFolder);
  if (!files.ok()) return names;
  for (const std::string& file : *files) {
    if (absl::EndsWith(file, ".hlo")) names.push_back(file.substr(0, file.size() - 4));
  }
  return names;
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  return absl::StrReplaceAll(info.param, {{"-", "_"}});
}

INSTANTIATE_TEST_SUITE_P(Passes, Golden, testing::ValuesIn(Files()), TestName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Golden);  // Tests may be listed in any folder.

TEST(FuseSiblingReductions, ChangesOnlyProgramsForCpus) {
  const auto text = RealFileSystem().Read(JoinPath(kFolder, "fuse-sibling-reductions.hlo"));
  ASSERT_TRUE(text.ok()) << text.status();
  const std::string input = ReadCase(std::vector<std::string>(absl::StrSplit(*text, kCase)).at(1)).input;
  for (const bool is_cpu : {false, true}) {
    const auto module = hlo::ParseText(input);
    ASSERT_TRUE(module.ok()) << module.status();
    const std::string before = hlo::PrintText(**module);
    PassContext context;
    context.is_cpu = is_cpu;
    PipelineOptions options;
    options.only = {"fuse-sibling-reductions"};
    ASSERT_TRUE(RunPipeline(**module, context, options, nullptr).ok());
    EXPECT_EQ(hlo::PrintText(**module) != before, is_cpu);
  }
}

TEST(GoldenFiles, AreFound) { EXPECT_FALSE(Files().empty()) << "run the test in the root of the source tree"; }

}  // namespace
}  // namespace xlad::compiler
