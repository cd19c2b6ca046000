// Error messages for bad programs. Every file in hlo/testdata/bad begins with "// ERROR: MESSAGE", the exact message
// that reading and verifying the file returns. Each rule of the verifier that a text can violate has at least one such
// file.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "gtest/gtest.h"
#include "hlo/read/read.h"

namespace xlad::hlo {
namespace {

constexpr char kFolder[] = "hlo/testdata/bad";
constexpr char kMark[] = "// ERROR: ";

std::string TextOf(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::map<std::string, std::string> ReadAll() {
  std::map<std::string, std::string> programs;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    programs[entry.path().filename().string()] = TextOf(entry.path());
  }
  return programs;
}

absl::Status ReadAndVerify(const std::string& text) {
  return ReadModule(text).status();
}

// Returns "label" for "... [label]".
std::string LabelOf(const std::string& message) {
  const size_t open = message.rfind('[');
  return message.empty() || message.back() != ']' || open == std::string::npos
             ? ""
             : message.substr(open + 1, message.size() - open - 2);
}

TEST(BadProgramsTest, EachProgramHasItsErrorMessage) {
  const auto programs = ReadAll();
  EXPECT_GE(programs.size(), 150u);
  for (const auto& [name, text] : programs) {
    ASSERT_EQ(text.rfind(kMark, 0), 0u) << name << " has no first line " << kMark;
    const size_t start = sizeof(kMark) - 1;
    const absl::Status status = ReadAndVerify(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(std::string(status.message()), text.substr(start, text.find('\n') - start)) << name;
  }
}

// The labels in the source of the verifier and of shape inference. Every string literal there that consists of several
// words with hyphens between them is a label. Labels of one word are the first argument of Violation.
std::set<std::string> LabelsInSource() {
  static const std::regex kLabel("\"([a-z0-9]+(?:-[a-z0-9]+)+)\"|Violation\\(\\s*\"([a-z0-9]+)\"");
  std::set<std::string> labels;
  for (const char* const folder : {"hlo/verify", "hlo/infer"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (entry.path().extension() != ".cc" || name.find("_test") != std::string::npos) continue;
      const std::string source = TextOf(entry.path());
      for (std::sregex_iterator found(source.begin(), source.end(), kLabel), end; found != end; ++found) {
        labels.insert((*found)[(*found)[1].matched ? 1 : 2].str());
      }
    }
  }
  EXPECT_GT(labels.size(), 150u);
  return labels;
}

// Rules that no text can violate: the parser or another rule reports the error first, or only modules that are made in
// code can violate them.
const std::set<std::string>& LabelsBeyondText() {
  static const auto* const labels = new std::set<std::string>{
      "all-gather-done-operand",
      "call-cycle",
      "called-computation",
      "collective-permute-done-operand",
      "computation-root",
      "constant-literal",
      "convolution-output-dims",
      "copy-done-operand",
      "dot-dims",
      "entry-layout",
      "layout-order",
      "module-entry",
      "operand-computation",
      "operand-order",
      "parameter-numbers",
      "replica-groups",
      "replica-groups-iota",
      "replica-groups-mesh",
      "shape-parts",
      "shape-type",
      "sharding-tiles",
      "sharding-transpose",
  };
  return *labels;
}

TEST(BadProgramsTest, EveryRuleHasABadProgram) {
  std::set<std::string> shown;
  for (const auto& [name, text] : ReadAll()) shown.insert(LabelOf(text.substr(0, text.find('\n'))));
  for (const std::string& label : LabelsInSource()) {
    EXPECT_TRUE(shown.contains(label) != LabelsBeyondText().contains(label)) << label;
  }
}

TEST(BadProgramsTest, TheReferenceListsTheRules) {
  static const std::regex kRow("\n\\| `([a-z0-9-]+)` \\| ");
  const std::string text = TextOf("docs/reference/hlo-rules.md");
  std::set<std::string> listed;
  for (std::sregex_iterator found(text.begin(), text.end(), kRow), end; found != end; ++found) {
    listed.insert((*found)[1].str());
  }
  EXPECT_EQ(listed, LabelsInSource());
}

}  // namespace
}  // namespace xlad::hlo
