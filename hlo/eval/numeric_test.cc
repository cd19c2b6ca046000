// Small floats against a table made with ml_dtypes and against their own definition; sub-byte integers.
#include "hlo/eval/numeric.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "gtest/gtest.h"

namespace xlad::hlo::eval {
namespace {

constexpr ElementType kSmallFloats[] = {ElementType::kF16,          ElementType::kBF16,       ElementType::kF8E5M2,
                                        ElementType::kF8E4M3,       ElementType::kF8E3M4,     ElementType::kF8E4M3FN,
                                        ElementType::kF8E5M2FNUZ,   ElementType::kF8E4M3FNUZ, ElementType::kF4E2M1FN,
                                        ElementType::kF8E4M3B11FNUZ};

float FloatOf(absl::string_view hex) {
  uint32_t bits = 0;
  EXPECT_TRUE(absl::SimpleHexAtoi(hex, &bits)) << hex;
  return std::bit_cast<float>(bits);
}

void CheckDecode(ElementType type, absl::string_view first, const std::vector<std::string>& values) {
  uint32_t code = 0;
  ASSERT_TRUE(absl::SimpleAtoi(first, &code));
  for (const std::string& text : values) {
    double expected = 0;
    ASSERT_TRUE(absl::SimpleAtod(text, &expected)) << text;
    const double actual = DecodeSmallFloat(type, static_cast<uint16_t>(code));
    const bool same = std::isnan(expected) ? std::isnan(actual)
                                           : actual == expected && std::signbit(actual) == std::signbit(expected);
    EXPECT_TRUE(same) << tensor::ToString(type) << " code " << code << ": found " << actual << ", expected " << text;
    ++code;
  }
}

void CheckEncode(ElementType type, const std::vector<std::string>& pairs) {
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const float value = FloatOf(pairs[i]);
    uint32_t expected = 0;
    ASSERT_TRUE(absl::SimpleHexAtoi(pairs[i + 1], &expected));
    EXPECT_EQ(EncodeSmallFloat(type, value), expected) << tensor::ToString(type) << " of " << value;
  }
}

TEST(SmallFloats, AgreeWithTheTable) {
  const auto text = RealFileSystem().Read("hlo/testdata/small_floats.txt");
  ASSERT_TRUE(text.ok()) << text.status();
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipWhitespace())) {
    if (line[0] == '#') continue;
    const std::vector<std::string> parts = absl::StrSplit(line, " : ");
    const std::vector<std::string> head = absl::StrSplit(parts[0], ' '), rest = absl::StrSplit(parts[1], ' ');
    const ElementType type = tensor::ParseElementType(head[0]).value();
    if (head[1] == "decode") CheckDecode(type, head[2], rest);
    if (head[1] == "encode") CheckEncode(type, rest);
    ++lines;
  }
  EXPECT_GT(lines, 200);
}

TEST(SmallFloats, EveryValueSurvives) {
  for (const ElementType type : kSmallFloats) {
    const uint32_t codes = 1u << tensor::BitWidth(type);
    for (uint32_t code = 0; code < codes; ++code) {
      const float value = DecodeSmallFloat(type, static_cast<uint16_t>(code));
      if (std::isnan(value)) continue;
      EXPECT_EQ(EncodeSmallFloat(type, value), code) << tensor::ToString(type);
    }
  }
}

// Between two neighbours everything goes to the nearer one, and the middle to the one with an even code.
TEST(SmallFloats, MiddlesGoToEven) {
  for (const ElementType type : kSmallFloats) {
    const uint32_t half = 1u << (tensor::BitWidth(type) - 1);
    for (uint32_t code = 0; code + 1 < half; ++code) {
      const double low = DecodeSmallFloat(type, static_cast<uint16_t>(code));
      const double high = DecodeSmallFloat(type, static_cast<uint16_t>(code + 1));
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const double middle = (low + high) / 2;
      EXPECT_EQ(EncodeSmallFloat(type, middle), code + code % 2) << tensor::ToString(type) << " " << middle;
      EXPECT_EQ(EncodeSmallFloat(type, std::nextafter(middle, 0.0)), code) << tensor::ToString(type);
      EXPECT_EQ(EncodeSmallFloat(type, std::nextafter(middle, 1e300)), code + 1) << tensor::ToString(type);
    }
  }
}

TEST(SmallFloats, Bf16ByBitsAgreesWithTheGeneralRule) {
  for (uint64_t i = 0; i < 200'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(i * 0x9E3779B97F4A7C15u >> 32));
    EXPECT_EQ(EncodeBf16(value), EncodeSmallFloat(ElementType::kBF16, value)) << value;
  }
}

TEST(SubByte, Wraps) {
  EXPECT_EQ(WrapSubByte(ElementType::kS4, 8), -8);
  EXPECT_EQ(WrapSubByte(ElementType::kS4, -9), 7);
  EXPECT_EQ(WrapSubByte(ElementType::kU4, 17), 1);
  EXPECT_EQ(WrapSubByte(ElementType::kU4, -1), 15);
  EXPECT_EQ(WrapSubByte(ElementType::kS2, 2), -2);
  EXPECT_EQ(WrapSubByte(ElementType::kS1, 1), -1);
  EXPECT_EQ(WrapSubByte(ElementType::kU1, 3), 1);
}

TEST(RoundToOdd, NeverRoundsTwice) {
  // 2^62 + 2^38 + 1 lies just above the middle of two floats; through a plain double it would land on the middle.
  const int64_t value = (int64_t{1} << 62) + (int64_t{1} << 38) + 1;
  EXPECT_EQ(static_cast<float>(ToDoubleForRounding(value)), static_cast<float>(value));
  for (uint64_t i = 1; i < 100'000; ++i) {
    const uint64_t x = i * 0x9E3779B97F4A7C15u >> (i % 60);
    EXPECT_EQ(static_cast<float>(ToDoubleForRounding(x)), static_cast<float>(x)) << x;
    EXPECT_EQ(static_cast<float>(ToDoubleForRounding(static_cast<int64_t>(x))),
              static_cast<float>(static_cast<int64_t>(x)));
  }
}

}  // namespace
}  // namespace xlad::hlo::eval
