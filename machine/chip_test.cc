// Chip files: the published figures, quantities, and errors for wrong files.
#include "machine/chip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file_system.h"
#include "machine/quantity.h"

namespace xlad::machine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string V5e() { return *RealFileSystem().Read("deploy/chips/v5e.toml"); }

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<Chip> chip = ParseChip(text, "my.toml");
  return chip.ok() ? "no error" : std::string(chip.status().message());
}

TEST(Chip, FilesHaveThePublishedFigures) {
  EXPECT_THAT(BuiltInChipNames(), ElementsAre("7x", "v2", "v3", "v4", "v5e", "v5p", "v6e"));
  for (const std::string& name : BuiltInChipNames()) {
    const absl::StatusOr<Chip> chip = BuiltInChip(name);
    ASSERT_TRUE(chip.ok()) << chip.status();
    EXPECT_EQ(chip->name, name);
    EXPECT_GT(chip->bf16_flops, 4e13);
    EXPECT_GT(chip->vector_ops(), 1e12);
    // Up to v5p, the peak is that of all multipliers at the clock. The published figures of later chips are higher.
    const double multipliers = 2.0 * chip->mxus() * chip->mxu_size * chip->mxu_size * chip->clock_hz;
    if (name[0] == 'v' && name != "v6e") EXPECT_NEAR(multipliers / chip->bf16_flops, 1, 0.01) << name;
  }
}

TEST(Chip, SlicesWrapAroundAsThePublishedRulesSay) {
  EXPECT_TRUE(BuiltInChip("v5e")->Wraps(16));
  EXPECT_FALSE(BuiltInChip("v5e")->Wraps(8));
  EXPECT_TRUE(BuiltInChip("v5p")->Wraps(28));
  EXPECT_FALSE(BuiltInChip("v5p")->Wraps(2));
}

TEST(Chip, UnknownNamesListTheKnownOnes) {
  EXPECT_THAT(std::string(BuiltInChip("v9").status().message()), AllOf(HasSubstr("\"v9\""), HasSubstr("v5e, v5p")));
}

TEST(Chip, ErrorsNameLineFoundAndExpected) {
  const std::string good = V5e();
  EXPECT_EQ(ErrorOf(good), "no error");
  const auto with = [&](const std::string& from, const std::string& to) {
    EXPECT_THAT(good, HasSubstr(from));
    return ErrorOf(absl::StrReplaceAll(good, {{from, to}}));
  };
  EXPECT_THAT(with("mxu_size = 128", "mxu_sise = 128"),
              AllOf(HasSubstr("my.toml:"), HasSubstr("unknown key compute.mxu_sise"), HasSubstr("compute.mxu_size?")));
  EXPECT_THAT(with("mxu_size = 128", ""), HasSubstr("my.toml:6: found no key compute.mxu_size, expected an integer"));
  EXPECT_THAT(with("mxu_size = 128", "mxu_size = 128.5"), HasSubstr("my.toml:9: found 128.5 for compute.mxu_size"));
  EXPECT_THAT(with("mxu_size = 128", "mxu_size = [128]"), HasSubstr("my.toml:9: found an array for compute"));
  EXPECT_THAT(with("mxu_size = 128", "mxu_size = -128"), HasSubstr("found -128 for compute.mxu_size"));
  EXPECT_THAT(with("mxu_size = 128", "mxu_size = 128\nmxu_size = 256"), HasSubstr("mxu_size"));
  EXPECT_THAT(with("\"819 GB/s\"", "\"819 GB\""),
              AllOf(HasSubstr("hbm.rate: found \"819 GB\""), HasSubstr("expected a positive quantity such as")));
  EXPECT_THAT(with("\"819 GB/s\"", "\"-819 GB/s\""), HasSubstr("found \"-819 GB/s\""));
  EXPECT_THAT(with("\"819 GB/s\"", "819"), HasSubstr("found 819 for hbm.rate, expected a quantity such as"));
  EXPECT_THAT(with("[hbm]", "[hmb]"), AllOf(HasSubstr("unknown key hmb"), HasSubstr("did you mean hbm?")));
  for (const char* const header : {"[hbm", "[=]", "[ # hbm", "[[", "[hbm.=]", "[.hbm]", "["}) {
    EXPECT_THAT(with("[hbm]", header), HasSubstr("is not TOML"));
  }
  EXPECT_THAT(with("dimensions = 2", "dimensions = 4"),
              AllOf(HasSubstr("my.toml:"), HasSubstr("found 4 for ici.dimensions, expected an integer of 1 to 3")));
  EXPECT_THAT(ErrorOf(""), HasSubstr("my.toml:1: found no key name"));
  EXPECT_THAT(ErrorOf("name = \"x\"\n\n"), HasSubstr("my.toml:2: found no key compute.cores"));
  EXPECT_THAT(ErrorOf("name = 3"), HasSubstr("my.toml:1: found 3 for name, expected a string"));
  EXPECT_THAT(ErrorOf("name = \"x\"\nhbm = 3"), HasSubstr("my.toml:2: found 3 for hbm, expected a table [hbm]"));
}

TEST(Chip, FilesWithoutTheNetworkBetweenSlicesAreAccepted) {
  const std::string good = V5e();
  const size_t at = good.find("[dcn]");
  ASSERT_NE(at, std::string::npos);
  EXPECT_DOUBLE_EQ(ParseChip(good, "my.toml")->dcn_bytes_per_s, 3.125e9);
  EXPECT_DOUBLE_EQ(ParseChip(good.substr(0, at), "my.toml")->dcn_bytes_per_s, 0);
  EXPECT_THAT(ErrorOf(absl::StrCat(good.substr(0, at), "[dcn]\nrate = \"1 GB/s\"\n")),
              HasSubstr("found no key dcn.latency, expected a quantity such as \"1 us\""));
  EXPECT_THAT(ErrorOf(absl::StrCat(good.substr(0, at), "[dcn]\nlatency = \"1 us\"\n")),
              HasSubstr("found no key dcn.rate"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(good, {{"3.125 GB/s", "3.125 GB"}})),
              HasSubstr("dcn.rate: found \"3.125 GB\""));
}

TEST(Chip, ErrorsHaveTheLineOfTheValue) {
  const std::string good = V5e();
  const size_t at = good.find("mxu_size");
  const int line = 1 + static_cast<int>(std::count(good.begin(), good.begin() + at, '\n'));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(good, {{"mxu_size = 128", "mxu_size = true"}})),
              HasSubstr(absl::StrCat("my.toml:", line, ": ")));
}

TEST(Chip, TruncatedFilesAreRejectedWithoutACrash) {
  const std::string good = V5e().substr(0, V5e().find("# The network between slices"));  // The table [dcn] is optional.
  int accepted = 0;
  for (size_t size = 0; size < good.size(); ++size) accepted += ParseChip(good.substr(0, size), "cut").ok() ? 1 : 0;
  EXPECT_LT(accepted, 10);  // A file without its last few bytes may still be valid.
}

TEST(Quantity, UnitsAndPrefixes) {
  EXPECT_DOUBLE_EQ(*ParseQuantity("16 GB", Dimension::kBytes), 16e9);
  EXPECT_DOUBLE_EQ(*ParseQuantity("128 MiB", Dimension::kBytes), 128.0 * (1 << 20));
  EXPECT_DOUBLE_EQ(*ParseQuantity("819 GB/s", Dimension::kBytesPerSecond), 819e9);
  EXPECT_DOUBLE_EQ(*ParseQuantity("0.5 TFLOP/s", Dimension::kOperationsPerSecond), 0.5e12);
  EXPECT_DOUBLE_EQ(*ParseQuantity("394TOP/s", Dimension::kOperationsPerSecond), 394e12);
  EXPECT_DOUBLE_EQ(*ParseQuantity("940 MHz", Dimension::kHertz), 940e6);
  EXPECT_DOUBLE_EQ(*ParseQuantity("1 us", Dimension::kSeconds), 1e-6);
  EXPECT_DOUBLE_EQ(*ParseQuantity("2 s", Dimension::kSeconds), 2);
  for (const char* const wrong : {"", "GB", "16", "16 Gb", "0 GB", "-1 GB", "1e400 GB", "16 GB/s", "16 mB", "1 2 GB"}) {
    EXPECT_FALSE(ParseQuantity(wrong, Dimension::kBytes).ok()) << wrong;
  }
  EXPECT_FALSE(ParseQuantity("0x10 GHz", Dimension::kHertz).ok());
  EXPECT_FALSE(ParseQuantity("1 Ms", Dimension::kSeconds).ok());
  EXPECT_FALSE(ParseQuantity("1 GiB/s", Dimension::kBytesPerSecond).ok());
}

TEST(Quantity, AQuantityOfNoChipIsRefusedWithItsRange) {
  const auto error = [](absl::string_view text, Dimension dimension) {
    return std::string(ParseQuantity(text, dimension).status().message());
  };
  EXPECT_EQ(error("1e20 s", Dimension::kSeconds), "found \"1e20 s\", expected a quantity from 0.001 ns to 10 s");
  EXPECT_EQ(error("1e-4 ns", Dimension::kSeconds), "found \"1e-4 ns\", expected a quantity from 0.001 ns to 10 s");
  EXPECT_THAT(error("1e-300 GB/s", Dimension::kBytesPerSecond), HasSubstr("from 1 kB/s to 1000 PB/s"));
  EXPECT_THAT(error("1e300 GB/s", Dimension::kBytesPerSecond), HasSubstr("from 1 kB/s to 1000 PB/s"));
  EXPECT_THAT(error("1e40 TFLOP/s", Dimension::kOperationsPerSecond), HasSubstr("from 1 MOP/s to 1000000 POP/s"));
  EXPECT_THAT(error("0.5 B", Dimension::kBytes), HasSubstr("from 1 B to 1000 PB"));
  EXPECT_THAT(error("1e-9 GHz", Dimension::kHertz), HasSubstr("from 1 kHz to 1 THz"));
  EXPECT_EQ(*ParseQuantity("1000 PB", Dimension::kBytes), 1e18);
  EXPECT_EQ(*ParseQuantity("1 THz", Dimension::kHertz), 1e12);
  EXPECT_DOUBLE_EQ(*ParseQuantity("0.001 ns", Dimension::kSeconds), 1e-12);
  EXPECT_EQ(*ParseQuantity("1000000 PFLOP/s", Dimension::kOperationsPerSecond), 1e21);
}

}  // namespace
}  // namespace xlad::machine
