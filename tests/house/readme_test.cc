// Checks that CI runs every command of make and xlad in the code blocks of README.md: .ci/run must contain each command
// as a line, once. Also checks that the links in Markdown files lead to existing files.
#include <set>

#include "gtest/gtest.h"
#include "tests/house/source_tree.h"

namespace xlad::house {
namespace {

std::string Trim(const std::string& line) {
  std::string text = line.substr(0, line.find(" #"));
  const size_t start = text.find_first_not_of(" \t");
  if (start == std::string::npos) return "";
  const size_t end = text.find_last_not_of(" \t\r");
  text = text.substr(start, end + 1 - start);
  return StartsWith(text, "$ ") ? text.substr(2) : text;
}

// Returns the commands of fenced blocks: lines that begin with make, xlad or a path to xlad.
std::vector<std::string> CommandsOf(const std::string& markdown) {
  std::vector<std::string> commands;
  bool inside = false;
  for (const std::string& line : Lines(markdown)) {
    if (StartsWith(line, "```")) {
      inside = !inside;
      continue;
    }
    const std::string command = Trim(line);
    const std::string program = command.substr(0, command.find(' '));
    if (inside && (program == "make" || program == "xlad" || EndsWith(program, "/xlad"))) commands.push_back(command);
  }
  return commands;
}

TEST(ReadmeTest, CommandsAreFound) {
  EXPECT_EQ(CommandsOf("make out\n```\nmake demo   # builds\n$ xlad run x\n make test\nmakeshift\n```\nxlad up\n"),
            (std::vector<std::string>{"make demo", "xlad run x", "make test"}));
}

TEST(ReadmeTest, CiRunsEveryCommandOnce) {
  if (!std::filesystem::exists("README.md")) GTEST_SKIP() << "no README.md";
  std::multiset<std::string> ran;
  for (const std::string& line : Lines(ReadText(".ci/run"))) ran.insert(Trim(line));
  for (const std::string& command : CommandsOf(ReadText("README.md"))) {
    EXPECT_EQ(ran.count(command), 1u) << "README.md shows \"" << command << "\"; expected .ci/run to run it once";
  }
}

std::string WithoutCodeBlocks(const std::string& markdown) {
  std::string text;
  bool inside = false;
  for (const std::string& line : Lines(markdown)) {
    const size_t start = line.find_first_not_of(' ');
    const bool is_fence = start != std::string::npos && line.compare(start, 3, "```") == 0;
    if (is_fence) inside = !inside;
    if (!inside && !is_fence) text += line + "\n";
  }
  return text;
}

TEST(ReadmeTest, CodeBlocksAreRemoved) {
  EXPECT_EQ(WithoutCodeBlocks("a\n```\n[x](y)\n```\nb\n   ```cpp\n[](int)\n   ```\nc\n"), "a\nb\nc\n");
}

// Links to files of the project lead to existing files.
TEST(ReadmeTest, LinkedFilesExist) {
  for (const SourceFile& page : FilesEndingWith({".md"})) {
    const auto folder = std::filesystem::path(page.path).parent_path();
    const std::string text = WithoutCodeBlocks(page.text);
    for (size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
      std::string target = text.substr(at + 2, text.find(')', at) - at - 2);
      target = target.substr(0, target.find('#'));
      if (target.empty() || target.find("://") != std::string::npos) continue;
      EXPECT_TRUE(std::filesystem::exists(folder / target)) << page.path << " links to " << target;
    }
  }
}

}  // namespace
}  // namespace xlad::house
