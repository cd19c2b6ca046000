#include "machine/quantity.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace xlad::machine {
namespace {

struct Prefix {
  absl::string_view text;
  double factor;
  bool is_binary = false;
};
constexpr Prefix kPrefixes[] = {{"Ki", 1024, true},
                                {"Mi", 1024.0 * 1024, true},
                                {"Gi", 1024.0 * 1024 * 1024, true},
                                {"k", 1e3},
                                {"M", 1e6},
                                {"G", 1e9},
                                {"T", 1e12},
                                {"P", 1e15},
                                {"n", 1e-9},
                                {"u", 1e-6},
                                {"m", 1e-3},
                                {"", 1}};

// The range of a dimension is much larger than that of real chips. It keeps all times finite and readable.
struct Range {
  absl::string_view least, most;
};
Range RangeOf(Dimension dimension) {
  switch (dimension) {
    case Dimension::kBytes:
      return {"1 B", "1000 PB"};
    case Dimension::kBytesPerSecond:
      return {"1 kB/s", "1000 PB/s"};
    case Dimension::kOperationsPerSecond:
      return {"1 MOP/s", "1000000 POP/s"};
    case Dimension::kHertz:
      return {"1 kHz", "1 THz"};
    case Dimension::kSeconds:
      return {"0.001 ns", "10 s"};
  }
  return {};
}

struct UnitRow {
  Dimension dimension;
  absl::string_view unit;
  absl::string_view example;
};
constexpr UnitRow kUnits[] = {
    {Dimension::kBytes, "B", "16 GB"},
    {Dimension::kBytesPerSecond, "B/s", "819 GB/s"},
    {Dimension::kOperationsPerSecond, "FLOP/s", "197 TFLOP/s"},
    {Dimension::kOperationsPerSecond, "OP/s", "394 TOP/s"},
    {Dimension::kHertz, "Hz", "1.5 GHz"},
    {Dimension::kSeconds, "s", "1 us"},
};

// The factor of a unit such as "GB/s" (1e9), or 0 if the dimension has no such unit.
double FactorOf(absl::string_view unit, Dimension dimension) {
  for (const UnitRow& row : kUnits) {
    absl::string_view prefix = unit;
    if (row.dimension != dimension || !absl::ConsumeSuffix(&prefix, row.unit)) continue;
    const bool is_time = dimension == Dimension::kSeconds;
    for (const Prefix& known : kPrefixes) {
      if (prefix != known.text || (known.is_binary && dimension != Dimension::kBytes)) continue;
      if (is_time ? known.factor <= 1 : known.factor >= 1) return known.factor;
    }
  }
  return 0;
}

// The value in the unit without prefix, or 0 if the text is not a quantity of the dimension.
double ValueOf(absl::string_view text, Dimension dimension) {
  const size_t end = text.find_last_of("0123456789.");
  const absl::string_view number = end == absl::string_view::npos ? "" : text.substr(0, end + 1);
  const absl::string_view unit = absl::StripAsciiWhitespace(text.substr(number.size()));
  double value = 0;
  const bool is_decimal = number.find_first_of("xX") == absl::string_view::npos;  // SimpleAtod also reads "0x10".
  return is_decimal && absl::SimpleAtod(number, &value) ? value * FactorOf(unit, dimension) : 0;
}

}  // namespace

absl::string_view ExampleOf(Dimension dimension) {
  for (const UnitRow& row : kUnits) {
    if (row.dimension == dimension) return row.example;
  }
  return "";
}

absl::StatusOr<double> ParseQuantity(absl::string_view text, Dimension dimension) {
  const double value = ValueOf(text, dimension);
  if (!(value > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found \"", text, "\", expected a positive quantity such as \"", ExampleOf(dimension), "\""));
  }
  const auto [least, most] = RangeOf(dimension);
  if (value >= ValueOf(least, dimension) && value <= ValueOf(most, dimension)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("found \"", text, "\", expected a quantity from ", least, " to ", most));
}

}  // namespace xlad::machine
