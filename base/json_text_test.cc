#include "base/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "base/utf8.h"

namespace xlad {
namespace {

TEST(JsonString, IsThatOfTheJsonLibrary) {
  std::string text = "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
  for (int c = 0; c < 0x80; ++c) text += static_cast<char>(c);
  EXPECT_EQ(JsonString(text), JsonText(nlohmann::json(text)));
  EXPECT_EQ(JsonString(""), "\"\"");
}

TEST(JsonString, IsReadAsTheTextInUtf8) {
  const std::unique_ptr<Random> random = SeededRandom(1);
  for (int i = 0; i < 2'000; ++i) {
    std::string text;
    for (uint64_t left = random->Below(8); left > 0; --left) text += static_cast<char>(random->Below(256));
    ASSERT_EQ(nlohmann::json::parse(JsonString(text)).get<std::string>(), ToUtf8(text));
  }
}

}  // namespace
}  // namespace xlad
