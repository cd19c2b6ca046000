// Draws a curve as text for a terminal and as SVG.
#pragma once

#include <string>
#include <vector>

namespace xlad::cli {

// Returns `columns` x `rows` characters of braille dots, with the axis of values on the left and the axis of indices
// below. Values that are not finite are omitted. If no value is finite, returns one line that says so. `rows` must be
// at least 2, and `columns` must exceed the length of the label of the last index ("step 99").
std::string PlotText(const std::vector<float>& values, int columns, int rows);

// Returns an SVG document with axes and `title`.
std::string PlotSvg(const std::string& title, const std::vector<float>& values);

}  // namespace xlad::cli
