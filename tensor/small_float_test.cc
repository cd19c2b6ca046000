// Compares small floats with a table that was made with the ml_dtypes package, and with the definition of rounding.
#include "tensor/small_float.h"

#include <bit>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "gtest/gtest.h"

namespace xlad::tensor {
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
    const double actual = DecodeSmallFloat(type, code);
    const bool same = std::isnan(expected) ? std::isnan(actual)
                                           : actual == expected && std::signbit(actual) == std::signbit(expected);
    EXPECT_TRUE(same) << ToString(type) << " code " << code << ": found " << actual << ", expected " << text;
    ++code;
  }
}

void CheckEncode(ElementType type, const std::vector<std::string>& pairs) {
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const float value = FloatOf(pairs[i]);
    uint32_t expected = 0;
    ASSERT_TRUE(absl::SimpleHexAtoi(pairs[i + 1], &expected));
    EXPECT_EQ(EncodeSmallFloat(type, value), expected) << ToString(type) << " of " << value;
  }
}

TEST(SmallFloats, AgreeWithMlDtypes) {
  const auto text = RealFileSystem().Read("tensor/testdata/small_floats.txt");
  ASSERT_TRUE(text.ok()) << text.status();
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipWhitespace())) {
    if (line[0] == '#') continue;
    const std::vector<std::string> parts = absl::StrSplit(line, " : ");
    const std::vector<std::string> head = absl::StrSplit(parts[0], ' '), rest = absl::StrSplit(parts[1], ' ');
    const ElementType type = ParseElementType(head[0]).value();
    if (head[1] == "decode") CheckDecode(type, head[2], rest);
    if (head[1] == "encode") CheckEncode(type, rest);
    ++lines;
  }
  EXPECT_GT(lines, 200);
}

TEST(SmallFloats, EncodingInvertsDecoding) {
  for (const ElementType type : kSmallFloats) {
    const uint32_t codes = 1u << BitWidth(type);
    for (uint32_t code = 0; code < codes; ++code) {
      const float value = DecodeSmallFloat(type, code);
      if (std::isnan(value)) continue;
      EXPECT_EQ(EncodeSmallFloat(type, value), code) << ToString(type);
    }
  }
}

// A number between two neighboring values is rounded to the nearer one; the midpoint is rounded to the one with an even
// code.
TEST(SmallFloats, RoundToNearestTiesToEven) {
  for (const ElementType type : kSmallFloats) {
    const uint32_t half = 1u << (BitWidth(type) - 1);
    for (uint32_t code = 0; code + 1 < half; ++code) {
      const double low = DecodeSmallFloat(type, code);
      const double high = DecodeSmallFloat(type, code + 1);
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const double middle = (low + high) / 2;
      EXPECT_EQ(EncodeSmallFloat(type, middle), code + code % 2) << ToString(type) << " " << middle;
      EXPECT_EQ(EncodeSmallFloat(type, std::nextafter(middle, 0.0)), code) << ToString(type);
      EXPECT_EQ(EncodeSmallFloat(type, std::nextafter(middle, 1e300)), code + 1) << ToString(type);
    }
  }
}

TEST(SmallFloats, EncodeBf16AgreesWithTheGenericEncoding) {
  for (uint64_t i = 0; i < 200'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(i * 0x9E3779B97F4A7C15u >> 32));
    EXPECT_EQ(EncodeBf16(value), EncodeSmallFloat(ElementType::kBF16, value)) << value;
  }
}

template <ElementType kType>
void CheckFixedCodec() {
  using Codec = SmallFloat<kType>;
  for (int code = 0; code < 1 << BitWidth(kType); ++code) {
    const float value = DecodeSmallFloat(kType, code);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Codec::Decode(code))) << ToString(kType) << " " << code;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(Codec::Decode(code)), std::bit_cast<uint32_t>(value)) << ToString(kType);
    }
  }
  for (uint64_t i = 0; i < 100'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(i * 0x9E3779B97F4A7C15u >> 32));
    EXPECT_EQ(Codec::Encode(value), EncodeSmallFloat(kType, value)) << ToString(kType) << " of " << value;
  }
}

TEST(SmallFloats, FixedCodecsAgreeWithTheGenericOnes) {
  CheckFixedCodec<ElementType::kF16>();
  CheckFixedCodec<ElementType::kBF16>();
  CheckFixedCodec<ElementType::kF8E5M2>();
  CheckFixedCodec<ElementType::kF8E4M3>();
  CheckFixedCodec<ElementType::kF8E3M4>();
  CheckFixedCodec<ElementType::kF8E4M3FN>();
  CheckFixedCodec<ElementType::kF8E4M3B11FNUZ>();
  CheckFixedCodec<ElementType::kF8E4M3FNUZ>();
  CheckFixedCodec<ElementType::kF8E5M2FNUZ>();
  CheckFixedCodec<ElementType::kF4E2M1FN>();
  CheckFixedCodec<ElementType::kF8E8M0FNU>();
}

}  // namespace
}  // namespace xlad::tensor
