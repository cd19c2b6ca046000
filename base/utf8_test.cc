#include "base/utf8.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/random.h"

namespace xlad {
namespace {

// The JSON library checks UTF-8 by an automaton of its own, and throws if the text is not UTF-8.
bool IsUtf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

TEST(ToUtf8, ReplacesOnlyBytesOutsideOfCharacters) {
  const std::string mark = "\xef\xbf\xbd";
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
      {"a\xffz", "a" + mark + "z"},
      {"\xc3", mark},  // A character without its end.
      {"\xe2\x82", mark + mark},
      {"\x82\xe2\x82\xac", mark + "\xe2\x82\xac"},      // A character without its beginning.
      {"\xc0\x80", mark + mark},                        // An overlong form of 0.
      {"\xed\xa0\x80", mark + mark + mark},             // A surrogate.
      {"\xf4\x90\x80\x80", mark + mark + mark + mark},  // 0x110000.
      {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
  };
  for (const auto& [given, expected] : cases) EXPECT_EQ(ToUtf8(given), expected);
}

TEST(ToUtf8, EveryResultIsUtf8AndUtf8IsUnchanged) {
  const std::unique_ptr<Random> random = SeededRandom(1);
  const std::string bytes("\x00\x41\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xed\xef\xf0\xf1\xf4\xf5\xff",
                          22);
  int valid = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (uint64_t left = random->Below(6); left > 0; --left) text += bytes[random->Below(bytes.size())];
    const std::string found = ToUtf8(text);
    ASSERT_TRUE(IsUtf8(found));
    ASSERT_EQ(found == text, IsUtf8(text));
    valid += found == text;
  }
  EXPECT_GT(valid, 100);
  EXPECT_LT(valid, 19'900);
}

}  // namespace
}  // namespace xlad
