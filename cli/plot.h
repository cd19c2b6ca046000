// A curve as text for a terminal and as SVG for a page.
#pragma once

#include <string>
#include <vector>

namespace xlad::cli {

// `columns` x `rows` characters with an axis of values on the left and of indices below. Values that are not finite
// are left out; an empty curve gives a line that says so.
std::string PlotText(const std::vector<float>& values, int columns, int rows);

std::string PlotSvg(const std::string& title, const std::vector<float>& values);

}  // namespace xlad::cli
