#include "cli/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace xlad::cli {
namespace {

struct Range {
  double low = 0, high = 1;
  bool empty = true;
};

Range RangeOf(const std::vector<float>& values) {
  Range range;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    range.low = range.empty ? value : std::min(range.low, static_cast<double>(value));
    range.high = range.empty ? value : std::max(range.high, static_cast<double>(value));
    range.empty = false;
  }
  if (range.high - range.low < 1e-12) range.high = range.low + 1;
  return range;
}

std::string Number(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

// Escapes the characters that have a meaning in XML. A job's name may contain them, but no control characters.
std::string EscapedForXml(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

}  // namespace

std::string PlotText(const std::vector<float>& values, int columns, int rows) {
  const Range range = RangeOf(values);
  if (range.empty) return "(no values to draw)\n";
  // A braille character has 2 x 4 dots.
  const int width = columns * 2, height = rows * 4;
  static constexpr int kDots[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  std::vector<int> cells(columns * rows, 0);
  const size_t last = std::max<size_t>(1, values.size() - 1);
  for (int x = 0; x < width; ++x) {
    const double position = static_cast<double>(x) / (width - 1) * static_cast<double>(last);
    const size_t i = std::min(values.size() - 1, static_cast<size_t>(position + 0.5));
    if (!std::isfinite(values[i])) continue;
    const double share = (values[i] - range.low) / (range.high - range.low);
    const int y = height - 1 - static_cast<int>(std::lround(share * (height - 1)));
    cells[y / 4 * columns + x / 2] |= kDots[y % 4][x % 2];
  }
  std::string out;
  for (int row = 0; row < rows; ++row) {
    const double value = range.high - (range.high - range.low) * row / (rows - 1);
    absl::StrAppend(&out, row % 3 == 0 || row == rows - 1 ? Number("%9.4g", value) : "         ", " │");
    for (int column = 0; column < columns; ++column) {
      const int code = 0x2800 + cells[row * columns + column];
      out += static_cast<char>(0xE0 | (code >> 12));
      out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (code & 0x3F));
    }
    out += "\n";
  }
  const std::string end = absl::StrCat("step ", values.size() - 1);
  absl::StrAppend(&out, "          └");
  for (int column = 0; column < columns; ++column) absl::StrAppend(&out, "─");
  absl::StrAppend(&out, "\n           0", std::string(static_cast<size_t>(columns) - 1 - end.size(), ' '), end, "\n");
  return out;
}

std::string PlotSvg(const std::string& title, const std::vector<float>& values) {
  constexpr double kWidth = 800, kHeight = 420, kLeft = 80, kRight = 20, kTop = 46, kBottom = 46;
  const Range range = RangeOf(values);
  const double plot_width = kWidth - kLeft - kRight, plot_height = kHeight - kTop - kBottom;
  const auto y_of = [&](double v) { return kTop + plot_height * (1 - (v - range.low) / (range.high - range.low)); };
  std::string out = absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth, "\" height=\"", kHeight,
      "\" font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      "<text x=\"", kLeft, "\" y=\"28\" font-size=\"16\">", EscapedForXml(title), "</text>\n");
  for (int tick = 0; tick <= 4; ++tick) {
    const double value = range.low + (range.high - range.low) * tick / 4;
    absl::StrAppend(&out, "<line x1=\"", kLeft, "\" x2=\"", kWidth - kRight, "\" y1=\"", y_of(value), "\" y2=\"",
                    y_of(value), "\" stroke=\"#ddd\"/><text x=\"", kLeft - 8, "\" y=\"", y_of(value) + 4,
                    "\" text-anchor=\"end\">", Number("%.4g", value), "</text>\n");
  }
  const double last = values.size() > 1 ? static_cast<double>(values.size() - 1) : 1;
  absl::StrAppend(&out, "<text x=\"", kLeft, "\" y=\"", kHeight - 18, "\">0</text><text x=\"", kWidth - kRight,
                  "\" y=\"", kHeight - 18, "\" text-anchor=\"end\">step ", values.size() - (values.empty() ? 0 : 1),
                  "</text>\n<polyline fill=\"none\" stroke=\"#1f6feb\" stroke-width=\"2\" points=\"");
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    absl::StrAppend(&out, Number("%.2f", kLeft + plot_width * static_cast<double>(i) / last), ",",
                    Number("%.2f", y_of(values[i])), " ");
  }
  absl::StrAppend(&out, "\"/>\n</svg>\n");
  return out;
}

}  // namespace xlad::cli
