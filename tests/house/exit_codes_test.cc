// Checks that the help of `xlad` and the reference list every exit code.
#include <regex>

#include "gtest/gtest.h"
#include "tests/house/source_tree.h"

namespace xlad::house {
namespace {

TEST(ExitCodesTest, HelpAndReferenceListEach) {
  const std::string header = ReadText("cli/command.h"), help = ReadText("cli/main.cc");
  const std::string reference = ReadText("docs/reference/commands.md");
  const size_t begin = header.find("enum ExitCode"), codes = help.find("\"Exit codes: ");
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(codes, std::string::npos);
  const std::string listed = help.substr(codes, help.find(';', codes) - codes);
  const std::string rows = header.substr(begin, header.find("};", begin) - begin);
  const std::regex row(" = ([0-9]+),");
  int found = 0;
  for (std::sregex_iterator at(rows.begin(), rows.end(), row), end; at != end; ++at, ++found) {
    const std::string code = (*at)[1];
    EXPECT_TRUE(std::regex_search(listed, std::regex("[ \"]" + code + " "))) << "the help lacks " << code;
    EXPECT_NE(reference.find("\n| " + code + " | "), std::string::npos) << "the reference lacks " << code;
  }
  EXPECT_EQ(found, 6);
}

}  // namespace
}  // namespace xlad::house
