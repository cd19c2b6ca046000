// Numbers of bytes in texts for display.
#pragma once

#include <cstdio>
#include <iterator>
#include <string>

namespace xlad {

// Returns three significant digits and the largest unit in which the number is at least 1: "0 B", "312 B", "4.19 MB",
// "16 GB". The largest unit of all is EB.
inline std::string BytesText(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  // A number that would be printed as 1000 is printed in the next unit.
  for (; bytes >= 999.5 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %s", bytes, kUnits[unit]);
  return text;
}

}  // namespace xlad
