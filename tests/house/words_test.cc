// Checks that files do not contain forbidden words (marks of future work without a page of docs/, and paths of a single
// machine), and that every header has the required beginning.
#include "gtest/gtest.h"
#include "tests/house/source_tree.h"

namespace xlad::house {
namespace {

// The words are split so that this file passes its own test.
const std::string kPromises[] = {std::string("TO") + "DO", std::string("FIX") + "ME", std::string("X") + "XX"};
const std::string kMachinePath = std::string("/wo") + "rk/";

bool IsHouse(const SourceFile& file) { return StartsWith(file.path, "tests/house/"); }

// Whether the line names an existing page of docs/.
bool NamesAPage(const std::string& line) {
  const size_t at = line.find("docs/");
  if (at == std::string::npos) return false;
  const size_t end = line.find_first_of(" ):,;", at);
  return std::filesystem::exists(line.substr(at, end == std::string::npos ? end : end - at));
}

const std::vector<SourceFile>& TextFiles() {
  static const auto* const files = new std::vector<SourceFile>(FilesEndingWith(
      {".cc", ".h", ".def", ".proto", ".py", ".sh", ".md", ".txt", ".cmake", ".hlo", ".toml", ".yaml", ".json"}));
  return *files;
}

TEST(WordsTest, PromisesNameThePageThatOwnsThem) {
  for (const SourceFile& file : TextFiles()) {
    if (IsHouse(file) || EndsWith(file.path, ".hlo")) continue;
    const std::vector<std::string> lines = Lines(file.text);
    for (size_t i = 0; i < lines.size(); ++i) {
      for (const std::string& word : kPromises) {
        const size_t at = lines[i].find(word);
        const bool whole = at != std::string::npos && (at == 0 || std::isalnum(lines[i][at - 1]) == 0) &&
                           (at + word.size() >= lines[i].size() || std::isalnum(lines[i][at + word.size()]) == 0);
        // The style guide may contain the words because it states the rule.
        EXPECT_TRUE(!whole || NamesAPage(lines[i]) || file.path == "docs/style.md")
            << file.path << ":" << i + 1 << ": " << word << ", expected a page of docs/ that owns it on this line";
      }
    }
  }
}

TEST(WordsTest, NoPathsOfOneMachine) {
  for (const SourceFile& file : TextFiles()) {
    EXPECT_EQ(file.text.find(kMachinePath), std::string::npos) << file.path << " names " << kMachinePath;
  }
}

TEST(WordsTest, FilesSayWhatTheyAre) {
  for (const SourceFile& file : CppFiles()) {
    // Source files never include the precompiled headers in scripts/cmake.
    if (!EndsWith(file.path, ".h") || StartsWith(file.path, "scripts/cmake/")) continue;
    EXPECT_TRUE(StartsWith(file.text, "// ") || StartsWith(file.text, "/* ")) << file.path;
    EXPECT_TRUE(file.text.find("#pragma once") != std::string::npos || StartsWith(file.text, "/* ")) << file.path;
  }
}

}  // namespace
}  // namespace xlad::house
